"""Embedding nodes as engines of this process: trainers own nothing, and the bits stay."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.core import sharded_tables
from tests.support.core.sharded_tables import (
    KEYS,
    RATE,
    STEPS,
    TABLES,
    batch,
    reference,
    rows_in,
    rows_of,
)
from tests.support.roles.clusters import until
from tests.support.roles.owner_engines import BY_KEY, opened
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose, PlacementKind
from tfhybrid.core.update import UpdateChoices
from tfhybrid.errors import PeerDiedError, StoreError, TfhybridError


def train(engines: Sequence[Engine], trainers: int, choices: UpdateChoices) -> None:
    for node in engines[trainers:]:
        node.open_update("sgd", TABLES, choices)
    sharded_tables.train(engines[:trainers], choices)
    for node in engines[trainers:]:  # a node may still apply what the trainers know to come
        none = [np.empty(0, np.int64)] * 2
        node.read(TABLES, none, min_versions=[STEPS] * 2)


@pytest.mark.parametrize("trainers", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("reduction", ["frequency", "mean"])
def test_trainers_that_own_nothing_train_the_same_rows(
    tmp_path: Path, trainers: int, nodes: int, reduction: str
) -> None:
    choices = UpdateChoices(reduction=reduction)
    with opened(tmp_path, trainers, nodes) as engines:
        train(engines, trainers, choices)
        found = [rows_of(engine) for engine in engines[:trainers]]
        counts = [rows_in(engine) for engine in engines]
    (tmp_path / "alone").mkdir()
    replicated = [(PlacementKind.REPLICATED, 0)] * 2
    placements = replicated if trainers == 1 else [BY_KEY] * 2
    with opened(tmp_path / "alone", trainers, 0, placements) as engines:
        train(engines, trainers, choices)
        colocated = rows_of(engines[0])
    keys = np.arange(-60, 200)
    wanted = reference(trainers, reduction)
    for of_trainer in found:
        for rows, same, table in zip(of_trainer, colocated, wanted.values(), strict=True):
            np.testing.assert_array_equal(rows, same)
            np.testing.assert_allclose(rows, table.lookup(keys), rtol=2e-5, atol=1e-7)
    assert counts[:trainers] == [[0, 0]] * trainers
    for number, table in enumerate(wanted.values()):
        assert sum(of_node[number] for of_node in counts[trainers:]) == len(table.rows)


def test_a_whole_table_lies_on_the_node_that_is_named(tmp_path: Path) -> None:
    placements = [(PlacementKind.WHOLE, 1), BY_KEY]
    with opened(tmp_path, 1, 2, placements) as engines:
        train(engines, 1, UpdateChoices())
        _, first, second = [rows_in(engine)[0] for engine in engines]
    assert (first, second) == (0, len(reference(1)["item"].rows))


@pytest.mark.parametrize("clipping", ["norm", "global_norm"])
def test_clipping_adds_up_squares_of_nodes(tmp_path: Path, clipping: str) -> None:
    found = []
    for trainers, nodes in [(2, 0), (2, 1), (2, 3)]:
        folder = tmp_path / str(nodes)
        folder.mkdir()
        with opened(folder, trainers, nodes) as engines:
            train(engines, trainers, UpdateChoices(clipping=clipping, clip_limit=0.5))
            found.append(rows_of(engines[1]))
    for other in found[1:]:
        for rows, same in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(rows, same)


def test_an_owner_without_a_connection_is_named(tmp_path: Path) -> None:
    with opened(tmp_path, 1, 2, purposes=[]) as (trainer, *_):
        reason = r"There is no connection to host 1 \(host 1\), which owns rows"
        with pytest.raises(StoreError, match=reason):
            trainer.lookup("item", TABLES["item"], KEYS)
        trainer.name_owner(1, "embedding-0")
        reason = r"There is no connection to embedding-0 \(host 1\), which owns rows"
        with pytest.raises(StoreError, match=reason):
            trainer.lookup("item", TABLES["item"], KEYS)
        with pytest.raises(TfhybridError, match="another of 3 hosts than 0"):
            trainer.name_owner(0, "itself")


def waits_of(engine: Engine) -> int:
    standing = engine.standing()
    return standing.waits_begun - standing.waits_ended


def test_who_waits_for_rows_in_the_order_of_a_node_is_seen_to_wait(tmp_path: Path) -> None:
    with opened(tmp_path, 1, 1) as (trainer, node), ThreadPoolExecutor() as threads:
        mine, silent = socket.socketpair()
        trainer.connect_owner(node.host, LinkPurpose.READS, mine, "embedding-0")
        before = trainer.standing()
        count = ctypes.c_int64()
        numbers = ctypes.c_int64(0), ctypes.c_int64(0), *[ctypes.byref(count)] * 3, None, None
        waiting = threads.submit(trainer.call, "owners_scan", ctypes.c_int64(1), b"item", *numbers)
        until(lambda: trainer.standing().waits_begun > before.waits_begun)
        assert trainer.standing().waits_ended == before.waits_ended
        silent.close()
        with pytest.raises(PeerDiedError, match="The connection to embedding-0 is lost"):
            waiting.result()


def test_who_waits_for_the_update_of_a_node_is_seen_to_wait(tmp_path: Path) -> None:
    with opened(tmp_path, 1, 1) as (trainer, node), ThreadPoolExecutor() as threads:
        keys, gradients = batch(0, 0)
        trainer.open_update("sgd", TABLES).post(keys, gradients, [RATE] * 2, samples=len(keys[0]))
        waiting = threads.submit(trainer.wait, "item")  # the node has not opened the update
        until(lambda: waits_of(trainer) == 2)  # of this call, and of the thread that applies
        node.open_update("sgd", TABLES)
        waiting.result()
        until(lambda: waits_of(trainer) == 0)
