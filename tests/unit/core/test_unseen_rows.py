"""What keys without a row read outside of training, wherever the rows are, against plain NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.core.gathering import Gathering
from tests.support.core.pass_trainers import EVERYWHERE
from tests.support.core.pass_trainers import TABLES as OF_PASSES
from tests.support.core.sharded_hosts import Hosts
from tests.support.core.sharded_tables import (
    KEYS,
    SHARDED,
    TABLES,
    opened,
    reference,
    rows_of,
    train,
)
from tests.support.roles import owner_engines, split_roles
from tests.unit.core.announced_passes import CASES
from tfhybrid.core import native, passes, split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import PlacementKind
from tfhybrid.core.update import Update, UpdateChoices
from tfhybrid.data_nodes.elements import unflatten
from tfhybrid.data_nodes.key_links import DELIVERIES

REPLICATED = (PlacementKind.REPLICATED, 0)
WHOLE = (PlacementKind.WHOLE, 1)


def let_read(engine: Engine, unseen: str, tables: Sequence[str] = tuple(TABLES)) -> None:
    """Sets what keys without a row read in all tables."""
    for name in tables:
        engine.set_unseen(name, unseen)


def make_rows(update: Update, tables: Mapping[str, int], keys: np.ndarray) -> None:
    """Posts gradients of one for keys of all tables."""
    gradients = [np.ones((len(keys), dim), np.float32) for dim in tables.values()]
    update.post([keys] * len(tables), gradients, [0.1] * len(tables), samples=len(keys))


def judged(rows: np.ndarray, keys: np.ndarray, with_row: set[int], unseen: str) -> np.ndarray:
    """Returns what is read outside of training, given what training reads."""
    has_row = np.array([key in with_row for key in keys.tolist()])
    return rows if unseen == "initial" else np.where(has_row[:, np.newaxis], rows, np.float32(0))


def check(engine: Engine, with_rows: Sequence[set[int]], keys: np.ndarray = KEYS) -> None:
    """Reads all keys, some of them twice, with each setting."""
    keys = np.concatenate([keys, keys[:7]])
    trained = [engine.lookup(name, dim, keys) for name, dim in TABLES.items()]
    for unseen in ("zeros", "initial"):
        let_read(engine, unseen)
        before = native.counters()
        for (name, dim), rows, with_row in zip(TABLES.items(), trained, with_rows, strict=True):
            found = engine.lookup(name, dim, keys, outside=True)
            np.testing.assert_array_equal(found, judged(rows, keys, with_row, unseen))
            np.testing.assert_array_equal(engine.lookup(name, dim, keys), rows)
        after = native.counters()
        missing = sum(key not in some for some in with_rows for key in keys.tolist())
        assert after["keys_read"] - before["keys_read"] == len(keys) * len(TABLES)
        assert after["unseen_keys"] - before["unseen_keys"] == missing > 0


def with_rows(ranks: int) -> list[set[int]]:
    return [set(table.rows) for table in reference(ranks).values()]


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20], ids=["memory", "files"])
@pytest.mark.parametrize(
    ("hosts", "placements"),
    [
        (1, (REPLICATED, REPLICATED)),
        (2, (REPLICATED, SHARDED)),
        (3, (SHARDED, SHARDED)),
        (2, (WHOLE, SHARDED)),
    ],
    ids=["one host", "mixed", "sharded", "whole"],
)
def test_hosts_of_ranks(tmp_path: Path, hosts: int, placements, cache_bytes: int) -> None:
    with opened(tmp_path, hosts, placements, cache_bytes) as engines:
        train(engines, UpdateChoices())
        for engine in engines:
            check(engine, with_rows(hosts))


@pytest.mark.parametrize("nodes", [1, 3])
def test_embedding_nodes(tmp_path: Path, nodes: int) -> None:
    with owner_engines.opened(tmp_path, 2, nodes) as engines:
        for node in engines[2:]:
            node.open_update("sgd", TABLES)
        train(engines[:2])
        for trainer in engines[:2]:
            check(trainer, with_rows(2))


def test_an_answer_in_parts(tmp_path: Path) -> None:
    """Rows of more than one part, between them keys without a row."""
    keys = np.arange(40_000)
    with opened(tmp_path, 2, [SHARDED] * 2) as engines:
        update = engines[0].open_update("sgd", TABLES)
        other = engines[1].open_update("sgd", TABLES)
        some = keys[::3]
        make_rows(update, TABLES, some)
        make_rows(other, TABLES, keys[:0])
        for engine in engines:
            check(engine, [set(some.tolist())] * 2, keys)


@pytest.mark.parametrize("delivery", DELIVERIES.values())
def test_batches_of_data_nodes(tmp_path: Path, delivery: str) -> None:
    """Of batches for evaluation, however their rows come; of others the rows are requested."""
    with split_roles.split_job(tmp_path, 1, 2, 1) as job:
        trainer = job.engines[0]
        let_read(trainer, "zeros")
        job.train(epochs=1, delivery=delivery, arguments={"steps": 2})
        seen = [set(), set()]
        for features, _ in split_roles.dataset((0, 1), 2):
            for of_table, keys in zip(seen, split_roles.flat(features), strict=True):
                of_table.update(keys.tolist())
        plain = split_roles.dataset((0, 1))
        gather = Gathering(trainer, TABLES)
        for number, trains in enumerate((False, True), 1):
            feed = job.feed(0, number, delivery=delivery, trains=trains)
            missing = 0
            for (structure, leaves), (wanted, _) in zip(
                feed.epoch(job.declared), plain, strict=True
            ):
                features, _ = unflatten(structure, [leaf.values for leaf in leaves])
                handles = split_roles.flat(features)
                found = split_batches.lookup(trainer, TABLES, handles, outside=True)
                trained = split_batches.lookup(trainer, TABLES, handles)
                for outside, of_host in ((True, found), (False, trained)):
                    for rows, of_op in zip(of_host, gather(*handles, outside=outside), strict=True):
                        np.testing.assert_array_equal(rows, of_op)
                keys = split_roles.flat(wanted)
                for rows, of_training, some, with_row in zip(
                    found, trained, keys, seen, strict=True
                ):
                    expected = judged(of_training, some, with_row, "zeros")
                    np.testing.assert_array_equal(rows, expected)
                    missing += sum(key not in with_row for key in some.tolist())
            assert missing > 0
            feed.close()


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20], ids=["memory", "files"])
def test_announced_passes(shm_directory: Path, cache_bytes: int) -> None:
    """A key of an open pass without a row reads zeros, and its initial value in training."""
    case = CASES["decay"]
    keys = np.arange(-20, 60)
    with Hosts(shm_directory, range(2), OF_PASSES, case.optimizer, None, cache_bytes) as engines:
        updates = [engine.open_update("sgd", OF_PASSES) for engine in engines]
        some = keys[::2]
        for update in updates:
            make_rows(update, OF_PASSES, some)
        announced = [passes.announce(each, [dict.fromkeys(OF_PASSES, keys)]) for each in engines]
        for of_rank, engine in zip(announced, engines, strict=True):
            of_rank.begin(0)
            let_read(engine, "zeros", tuple(OF_PASSES))
            for name, dim in OF_PASSES.items():
                trained = engine.lookup(name, dim, EVERYWHERE)
                found = engine.lookup(name, dim, EVERYWHERE, outside=True)
                expected = judged(trained, EVERYWHERE, set(some.tolist()), "zeros")
                np.testing.assert_array_equal(found, expected)
                np.testing.assert_array_equal(engine.lookup(name, dim, EVERYWHERE), trained)
            assert passes.stats(engine).hits > 0
        for of_rank in announced:
            of_rank.end()


@pytest.mark.parametrize("hosts", [1, 2])
def test_rows_on_a_device(shm_directory: Path, hosts: int) -> None:
    """A key without a row reads zeros outside of training, and its initial value in training."""
    some = EVERYWHERE[::3]
    with Hosts(shm_directory, range(hosts), OF_PASSES, CASES["adagrad"].optimizer) as engines:
        updates = [engine.open_update("sgd", OF_PASSES) for engine in engines]
        for update in updates:
            make_rows(update, OF_PASSES, some)
        engine = engines[0]
        let_read(engine, "zeros", tuple(OF_PASSES))
        gather = Gathering(engine, OF_PASSES)
        with_pass = passes.announce(engine, [dict.fromkeys(OF_PASSES, EVERYWHERE[:90])])
        with_pass.begin(0)
        trained = [engine.lookup(name, dim, EVERYWHERE) for name, dim in OF_PASSES.items()]
        for outside in (False, True, False):
            for rows, of_training in zip(
                gather(EVERYWHERE, EVERYWHERE, outside=outside), trained, strict=True
            ):
                expected = judged(of_training, EVERYWHERE, set(some.tolist()), "zeros")
                np.testing.assert_array_equal(rows, expected if outside else of_training)
        with_pass.end()


def test_waiting_updates_come_first(tmp_path: Path) -> None:
    """A read outside of training waits for the updates in which its rank has taken part."""
    with opened(tmp_path, 1, [REPLICATED] * 2) as engines:
        let_read(engines[0], "zeros")
        update = engines[0].open_update("sgd", TABLES)
        keys = np.arange(2000)
        make_rows(update, TABLES, keys)
        found = engines[0].lookup("item", TABLES["item"], keys, outside=True)
        assert (found != 0).any(axis=1).all()
        assert len(rows_of(engines[0])) == len(TABLES)
