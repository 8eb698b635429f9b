"""Ranks of one host number the keys of their own batches ahead, each in its own queue."""

from __future__ import annotations

import pytest

import tfhybrid
from tests.parallel.exact_training import TOLERANCES, assert_exact, loop_step
from tests.parallel.uneven_batches import (
    assert_same_everywhere,
    compiled,
    dataset_of,
    share_of,
    steps_of,
)
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("job")

AHEAD = 3
# Before the first lookup, nothing is numbered: the buffer of the data set, and what is beside it.
BEFORE = AHEAD + 2


@pytest.mark.parametrize("way", ["fit", "loop"])
def test_each_rank_trains_its_batches_and_the_reference_agrees(way) -> None:
    """One rank has three times as many batches as the other, and its last one is short."""
    shares = [share_of(rank) for rank in range(tfhybrid.size())]
    mine = shares[tfhybrid.rank()]
    model = compiled("adagrad")
    trainer = click_model.reference(model, OPTIMIZERS["adagrad"][1])
    data = tfhybrid.data.announce(dataset_of(mine), AHEAD, click_model.collection(model))
    before = tfhybrid.pass_stats()
    if way == "fit":
        model.fit(data, verbose=0)
    else:
        step = loop_step(model, model.optimizer)
        for keys, labels in data:
            step(keys, labels)
        model.optimizer.join()
    stats = tfhybrid.pass_stats()
    for step in steps_of(shares):
        trainer.step(step)
    assert_exact(model, trainer, TOLERANCES["adagrad"])
    assert_same_everywhere(model, model.optimizer)
    hits = stats.ahead_hits - before.ahead_hits
    assert max(len(mine) - BEFORE, 0) <= hits < len(mine)
