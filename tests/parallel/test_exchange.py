"""All ways in which gradients reach the leader leave the same bits."""

from __future__ import annotations

import pytest

import tfhybrid
from tests.parallel.exact_training import fit, loss
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

STEPS = 6


def digests(optimizer: str, reduction: str, exchange: str) -> dict[str, int]:
    """Trains a model of a job of its own; returns the digest of each table, state included."""
    tfhybrid.shutdown()
    tfhybrid.init(seed=3)
    model = click_model.keras_model()
    wrapped = tfhybrid.DistributedOptimizer(
        OPTIMIZERS[optimizer][0](), reduction=reduction, exchange=exchange
    )
    model.compile(optimizer=wrapped, loss=loss())
    fit(model, click_model.batches(STEPS, tfhybrid.size()))
    tables = click_model.collection(model).tables
    return {name: table.digest() for name, table in tables.items()}


@pytest.mark.world_size
@pytest.mark.parametrize("reduction", ["frequency", "mean"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_leaders_and_all_ranks_give_the_same_tables(optimizer, reduction) -> None:
    leaders = digests(optimizer, reduction, "leaders")
    assert leaders == digests(optimizer, reduction, "all_ranks")
    assert len(set(leaders.values())) == len(leaders)


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"exchange must be one of .*Received: 'mail'"):
        tfhybrid.DistributedOptimizer("sgd", exchange="mail")
