"""Initializers of tables: their statistics, and those of Keras that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid import initializers
from tfhybrid.core import native
from tfhybrid.errors import ConfigError

DIM = 16
# Below what chance gives once in a hundred thousand runs; the values never change.
LEAST_P = 1e-5
DISTRIBUTIONS = {
    "uniform": (initializers.Uniform(-0.5, 0.25), scipy.stats.uniform(-0.5, 0.75)),
    "normal": (initializers.Normal(0.1, 0.3), scipy.stats.norm(0.1, 0.3)),
    "truncated_normal": (
        initializers.TruncatedNormal(0.1, 0.3),
        scipy.stats.truncnorm(-2, 2, 0.1, 0.3),
    ),
    "variance_scaling": (
        initializers.VarianceScaling(DIM, 2.0, "uniform"),
        scipy.stats.uniform(-np.sqrt(6 / DIM), 2 * np.sqrt(6 / DIM)),
    ),
}
KEYS = {
    "from 0 on": np.arange(20_000),
    "far apart": np.arange(-10_000, 10_000) * 2**40,
    "random": np.random.default_rng(1).integers(-(2**63), 2**63, 20_000, np.int64),
}


def values(initializer: initializers.Initializer, keys: np.ndarray, seed: int = 7) -> np.ndarray:
    return native.initial_rows(*initializer.native, seed, keys, DIM).astype(np.float64)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_values_follow_the_distribution(name, keys) -> None:
    initializer, distribution = DISTRIBUTIONS[name]
    found = values(initializer, keys)
    assert scipy.stats.kstest(found.ravel(), distribution.cdf).pvalue > LEAST_P
    # Each column by itself, and each embedding's mean.
    for column in found.T:
        assert scipy.stats.kstest(column, distribution.cdf).pvalue > LEAST_P
    means = (found.mean(axis=1) - distribution.mean()) / distribution.std() * np.sqrt(DIM)
    assert abs(means.mean()) * np.sqrt(len(means)) < 5
    assert means.std() == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_columns_neighbours_and_seeds_do_not_depend_on_each_other(keys) -> None:
    uniform = initializers.Uniform(-1.0, 1.0)
    first, second = values(uniform, keys, seed=1), values(uniform, keys, seed=2)
    pairs = [
        (first[:, 0], first[:, 1]),
        (first[:, 0], first[:, DIM - 1]),
        (first[:-1, 0], first[1:, 0]),
        (first[:-1, 3], first[1:, 4]),
        (first[:, 0], second[:, 0]),
    ]
    for a, b in pairs:
        assert scipy.stats.pearsonr(a, b).pvalue > LEAST_P
        counts, _, _ = np.histogram2d(a, b, bins=8, range=[[-1, 1], [-1, 1]])
        assert scipy.stats.chisquare(counts.ravel()).pvalue > LEAST_P


@pytest.mark.parametrize(
    ("of_keras", "ours"),
    [
        (keras.initializers.Zeros(), initializers.Zeros()),
        (keras.initializers.Ones(), initializers.Constant(1.0)),
        (keras.initializers.Constant(0.5), initializers.Constant(0.5)),
        (keras.initializers.RandomUniform(-0.2, 0.1), initializers.Uniform(-0.2, 0.1)),
        (keras.initializers.RandomNormal(0.5, 0.2), initializers.Normal(0.5, 0.2)),
        (keras.initializers.TruncatedNormal(0.5, 0.2), initializers.TruncatedNormal(0.5, 0.2)),
        ("ones", initializers.Constant(1.0)),
        ("random_uniform", initializers.Uniform()),
        ("random_normal", initializers.Normal()),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_those_of_keras_are_taken(of_keras, ours) -> None:
    assert tfhybrid.TableConfig(DIM, of_keras).initializer == ours


@pytest.mark.parametrize("distribution", ["truncated_normal", "untruncated_normal", "uniform"])
def test_variance_scaling_has_the_variance_of_keras(distribution) -> None:
    of_keras = keras.initializers.VarianceScaling(3.0, "fan_out", distribution)
    table = tfhybrid.TableConfig(DIM, of_keras)
    ours = values(table.initializer, np.arange(20_000))
    theirs = np.asarray(of_keras((20_000, DIM)), np.float64)
    assert ours.std() == pytest.approx(np.sqrt(3.0 / DIM), rel=0.01)
    assert scipy.stats.ks_2samp(ours.ravel(), theirs.ravel()).pvalue > LEAST_P


@pytest.mark.parametrize(
    "of_keras",
    [
        keras.initializers.GlorotUniform(seed=3),
        keras.initializers.HeNormal(),
        keras.initializers.LecunUniform(),
        keras.initializers.VarianceScaling(3.0, "fan_avg", "untruncated_normal"),
        keras.initializers.VarianceScaling(2.0, "fan_out"),
    ],
    ids=lambda initializer: type(initializer).__name__,
)
def test_with_a_number_of_keys_the_variance_is_that_of_keras(of_keras) -> None:
    keys = 20_001
    ours = values(initializers.get(of_keras, DIM, keys=keys), np.arange(keys))
    theirs = np.asarray(of_keras((keys, DIM)), np.float64)
    assert ours.std() == pytest.approx(theirs.std(), rel=0.01)
    assert scipy.stats.ks_2samp(ours.ravel(), theirs.ravel()).pvalue > LEAST_P


@needs_keras_3
def test_those_of_keras_2_are_taken() -> None:
    """With TF_USE_LEGACY_KERAS=1, `keras.initializers` are those of `tf_keras`."""
    import tf_keras

    of_keras = tf_keras.initializers.RandomNormal(0.5, 0.2)
    assert initializers.get(of_keras) == initializers.Normal(0.5, 0.2)


def test_an_array_of_constants_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ArrayRows.*Received: Constant with"):
        tfhybrid.TableConfig(DIM, keras.initializers.Constant(np.ones((3, DIM))))


@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.GlorotUniform(),
        keras.initializers.HeNormal(),
        keras.initializers.VarianceScaling(mode="fan_in"),
        keras.initializers.Orthogonal(),
        "glorot_uniform",
        0.5,
        None,
    ],
    ids=lambda initializer: getattr(initializer, "__class__", type(None)).__name__,
)
def test_what_depends_on_the_number_of_keys_is_refused(initializer) -> None:
    with pytest.raises(ConfigError, match=r"VarianceScaling\(mode='fan_out'\)"):
        tfhybrid.TableConfig(DIM, initializer)


def test_a_seed_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tfhybrid\.init\(seed=\.\.\.\).*seed=3"):
        tfhybrid.TableConfig(DIM, keras.initializers.RandomNormal(seed=3))


@pytest.mark.parametrize("arguments", [(0,), (16, -1.0), (16, 1.0, "cauchy")])
def test_a_variance_that_cannot_be_is_refused(arguments) -> None:
    with pytest.raises(ConfigError, match="Received"):
        initializers.VarianceScaling(*arguments)
