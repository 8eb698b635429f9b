"""`update="pass"`: the batches of a pass make one update, and end together on all ranks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.parallel.exact_training import TOLERANCES, assert_exact, loop_step
from tests.parallel.uneven_batches import assert_same_everywhere, compiled, dataset_of, share_of
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

COUNTS = (8, 10, 3, 4)  # batches of the ranks
LONGEST = (4, 3, 4, 5)  # passes that they ask for


def lengths_of(counts, longest) -> list[int]:
    """Returns the batches of each pass: as many as the rank has that can train the fewest."""
    lengths: list[int] = []
    while (first := sum(lengths)) < max(counts):
        pairs = zip(counts, longest, strict=True)
        lengths.append(min(min(most, count - first) for count, most in pairs if count > first))
    return lengths


def announced(model: keras.Model, batches, longest: int, **options):
    return tfhybrid.data.announce(
        dataset_of(batches),
        longest,
        click_model.collection(model),
        optimizer=model.optimizer,
        **options,
    )


@pytest.mark.parametrize("fetch", ["pass", "batch"])
def test_the_rank_whose_pass_ends_first_ends_it_for_all(fetch) -> None:
    """Ranks end their passes at different batches, and their data too."""
    counts, longest = COUNTS[: tfhybrid.size()], LONGEST[: tfhybrid.size()]
    shares = [share_of(rank)[:count] for rank, count in enumerate(counts)]
    model = compiled("adam", update="pass")
    trainer = click_model.reference(model, OPTIMIZERS["adam"][1])
    mine = tfhybrid.rank()
    data = announced(model, shares[mine], longest[mine], fetch=fetch)
    for _ in range(2):
        model.fit(data, verbose=0)
    lengths = lengths_of(counts, longest)
    for length, first in [*zip(lengths, np.cumsum([0, *lengths[:-1]]), strict=True)] * 2:
        parts = [share[first : first + length] for share in shares]
        trainer.step_of_micro_batches([part for part in parts if part])
    assert_exact(model, trainer, TOLERANCES["adam"])
    assert_same_everywhere(model, model.optimizer)
    assert int(model.optimizer.iterations) == 2 * len(lengths)


def test_it_has_the_bits_of_as_many_backward_passes() -> None:
    """In a loop of one's own, whose last pass is short."""
    batches = share_of(tfhybrid.rank())[:5]
    found = []
    for options in ({"update": "pass"}, {"backward_passes_per_step": 3}):
        model = compiled("adam", **options)
        data = announced(model, batches, 3) if "update" in options else dataset_of(batches)
        step = loop_step(model, model.optimizer)
        for keys, labels in data:
            step(keys, labels)
        model.optimizer.join()
        rows = [table.lookup(np.arange(-30, 30)) for table in tables_of(model)]
        found.append([*click_model.dense_weights(model), *rows])
        assert int(model.optimizer.iterations) == 2
        tfhybrid.shutdown()
        tfhybrid.init()
        keras.backend.clear_session()
    for mine, other in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, other)


def tables_of(model: keras.Model) -> list:
    tables = click_model.collection(model).tables
    return [tables[name] for name in sorted(tables)]


def test_it_trains_announced_batches_and_no_others() -> None:
    model = compiled("sgd", update="pass")
    batches = share_of(tfhybrid.rank())[:4]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"data\.announce.*did not yield, on "):
        model.fit(dataset_of(batches), verbose=0)


def test_the_data_may_not_run_ahead_of_the_training() -> None:
    model = compiled("sgd", update="pass")
    batches = share_of(0)[:5]
    ahead = announced(model, batches, 3).prefetch(1)
    with pytest.raises(tf.errors.OpError, match=r"comes last.* begun and [12] trained|not yield"):
        train_in_a_loop(model, ahead)


def train_in_a_loop(model: keras.Model, data: tf.data.Dataset) -> None:
    for keys, labels in data:
        model.train_on_batch(keys, labels)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'batch', 'pass'.*Received: update='epoch'"):
        tfhybrid.DistributedOptimizer("sgd", update="epoch")
    with pytest.raises(ConfigError, match=r"Received: update='pass', backward_passes_per_step=2"):
        tfhybrid.DistributedOptimizer("sgd", update="pass", backward_passes_per_step=2)
    model = compiled("sgd")
    data, layers = dataset_of([]), click_model.collection(model)
    with pytest.raises(ConfigError, match=r'update="pass"\)\. Received: '):
        tfhybrid.data.announce(data, 3, layers, optimizer=model.optimizer)
    optimizer = tfhybrid.DistributedOptimizer("sgd", update="pass")
    with pytest.raises(ConfigError, match=r"at most 4096 batches\. Received: batches=5000"):
        tfhybrid.data.announce(data, 5000, layers, optimizer=optimizer)
