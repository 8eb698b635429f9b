"""Sharded tables: several hosts as engines of this process, against plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.core.sharded_tables import (
    SHARDED,
    STEPS,
    batch,
    opened,
    reference,
    rows_in,
    rows_of,
    train,
)
from tfhybrid.core import native
from tfhybrid.core.native import PlacementKind
from tfhybrid.core.update import UpdateChoices

REPLICATED = (PlacementKind.REPLICATED, 0)


@pytest.mark.parametrize("reduction", ["frequency", "mean", "sum"])
@pytest.mark.parametrize("hosts", [2, 3, 4])
@pytest.mark.parametrize(
    "placements",
    [(SHARDED, SHARDED), (SHARDED, REPLICATED), ((PlacementKind.WHOLE, 1), SHARDED)],
    ids=["sharded", "mixed", "whole"],
)
def test_all_placements_train_the_same_rows(
    shm_directory: Path, hosts: int, placements: Any, reduction: str
) -> None:
    before = native.counters()  # of all hosts: they are in this process
    with opened(shm_directory, hosts, placements) as engines:
        train(engines, UpdateChoices(reduction=reduction))
        all_rows = [rows_of(engine) for engine in engines]
        counts = [rows_in(engine) for engine in engines]
    counted = {name: count - before[name] for name, count in native.counters().items()}
    batches = [batch(step, rank)[0] for step in range(STEPS) for rank in range(hosts)]
    assert counted["samples"] == hosts * sum(len(keys[0]) for keys in batches)
    assert counted["steps"] == hosts * STEPS
    assert counted["sent_bytes"] == counted["received_bytes"] > 0
    wanted = reference(hosts, reduction)
    keys = np.arange(-60, 200)
    for found in all_rows:
        for table, rows, first in zip(wanted.values(), found, all_rows[0], strict=True):
            np.testing.assert_allclose(rows, table.lookup(keys), rtol=2e-5, atol=1e-7)
            np.testing.assert_array_equal(rows, first)
    for number, (table, (kind, owner)) in enumerate(zip(wanted.values(), placements, strict=True)):
        of_hosts = [rows[number] for rows in counts]
        if kind == PlacementKind.REPLICATED:
            assert of_hosts == [len(table.rows)] * hosts
        else:  # each key has a row on its owner alone
            assert sum(of_hosts) == len(table.rows)
            assert kind == PlacementKind.BY_KEY or of_hosts[owner] == len(table.rows)


def test_the_bits_are_those_of_replicated_tables(tmp_path: Path) -> None:
    """Where keys lie changes nothing; a host alone has no others to add up in another order."""
    found = {}
    for name, placement in {"sharded": SHARDED, "whole": (PlacementKind.WHOLE, 0)}.items():
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, 3, [placement] * 2) as engines:
            train(engines, UpdateChoices())
            found[name] = rows_of(engines[1])
    for sharded, whole in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(sharded, whole)


def test_rows_that_lie_in_files_are_the_same(tmp_path: Path) -> None:
    found = {}
    for name, cache_bytes in {"memory": 0, "files": 1 << 20}.items():
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, 2, [SHARDED] * 2, cache_bytes) as engines:
            train(engines, UpdateChoices())
            found[name] = rows_of(engines[0])
    for in_memory, in_files in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(in_memory, in_files)
