from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfhybrid.core import native
from tfhybrid.errors import ConfigError
from tfhybrid.ops.initial_values import initial_values, table_seed

KINDS = {"zeros": 0, "constant": 1, "uniform": 2, "normal": 3, "truncated_normal": 4}
INT64 = np.iinfo(np.int64)
EXTREME_KEYS = np.array([0, 1, -1, 2**32, INT64.min, INT64.min + 1, INT64.max], np.int64)
SEEDS = [0, 1, 2**63, 2**64 - 1, table_seed(17, "item")]


# At seed 42 the first column of these draws the smallest and the largest sample there is.
RAREST_KEYS = np.array([-661832922496011765, 7757116439765330151], np.int64)


def random_keys(count: int) -> np.ndarray:
    return np.random.default_rng(5).integers(INT64.min, INT64.max, count, np.int64, endpoint=True)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_equals_native_bits(kind: str, seed: int) -> None:
    keys = np.concatenate([EXTREME_KEYS, random_keys(500)])
    expected = native.initial_rows(KINDS[kind], -0.25, 0.75, seed, keys, 17)
    assert_same_bits(initial_values(kind, -0.25, 0.75, seed, keys, 17).numpy(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_native_bits_inside_an_optimized_graph(kind: str) -> None:
    keys = np.concatenate([EXTREME_KEYS, RAREST_KEYS, random_keys(20_000)])
    graph = tf.function(
        lambda keys: initial_values(kind, -0.05, 0.05, 42, keys, 16),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    expected = native.initial_rows(KINDS[kind], -0.05, 0.05, 42, keys, 16)
    assert_same_bits(graph(keys).numpy(), expected)


def test_rarest_samples_stay_within_two_standard_deviations() -> None:
    values = initial_values("truncated_normal", 0.0, 1.0, 42, RAREST_KEYS, 1)
    assert values.numpy().tolist() == [[-2.0], [2.0]]


def test_equals_native_bits_of_a_constant_folded_graph() -> None:
    graph = tf.function(
        lambda: initial_values("normal", 0.0, 0.01, 42, tf.constant(EXTREME_KEYS), 16)
    )
    assert_same_bits(graph().numpy(), native.initial_rows(3, 0.0, 0.01, 42, EXTREME_KEYS, 16))


def test_survives_a_plain_saved_model(tmp_path) -> None:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def __call__(self, keys: tf.Tensor) -> tf.Tensor:
            return initial_values("truncated_normal", 0.1, 2.0, 2**64 - 1, keys, 8)

    tf.saved_model.save(Module(), str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    expected = native.initial_rows(4, 0.1, 2.0, 2**64 - 1, EXTREME_KEYS, 8)
    assert_same_bits(restored(tf.constant(EXTREME_KEYS)).numpy(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_keys_give_no_rows(kind: str) -> None:
    assert initial_values(kind, 0.0, 1.0, 3, tf.constant([], tf.int64), 4).shape == (0, 4)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="Received: 'gaussian'"):
        initial_values("gaussian", 0.0, 1.0, 3, tf.constant([1], tf.int64), 4)


@pytest.mark.parametrize("name", ["", "item", "a table, with (odd) characters", "größe", "表"])
@pytest.mark.parametrize("job_seed", [0, 1, 2**63 - 1, 2**64 - 1])
def test_table_seed_equals_native(job_seed: int, name: str) -> None:
    assert table_seed(job_seed, name) == native.table_seed(job_seed, name)


def test_table_seed_depends_on_name_and_job() -> None:
    seeds = {table_seed(job, name) for job in range(20) for name in ("a", "b", "ab", "ba")}
    assert len(seeds) == 80
