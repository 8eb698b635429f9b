"""What each host has of a sharded table: new ids, skew, and memory, of engines in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.core.sharded_tables import RATE, SHARDED, TABLES, opened
from tests.support.reference import training
from tests.unit.core.user_table import DIM, NAME, opened_updates, reference, stats_of
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import Update

HOSTS = pytest.mark.parametrize("hosts", [1, 2, 3])


def train(
    engines: Sequence[Engine], updates: Sequence[Update], keys: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    """One step: each host posts its keys, with gradients that follow from key and host."""
    posted = []
    for host, (update, of_host) in enumerate(zip(updates, keys, strict=True)):
        factors = (np.sin(of_host + host) + 0.5).astype(np.float32)
        gradients = [
            np.outer(factors, np.arange(1, dim + 1)).astype(np.float32) for dim in TABLES.values()
        ]
        update.post([of_host] * len(TABLES), gradients, [RATE] * len(TABLES), samples=len(of_host))
        posted.append(gradients)
    for engine in engines:
        for name in TABLES:
            engine.wait(name)
    return posted


def check(engines: Sequence[Engine], table: training.Table, unseen: np.ndarray) -> None:
    """Each id has its row on its owner alone, and every host reads what the reference has."""
    ids = np.array(list(table.rows))
    owned = np.array([engine.owned(NAME, ids) for engine in engines])
    np.testing.assert_array_equal(owned.sum(axis=0), 1)
    assert [stats_of(engine).rows for engine in engines] == owned.sum(axis=1).tolist()
    asked = np.concatenate([ids, unseen])
    for engine in engines:
        np.testing.assert_allclose(
            engine.lookup(NAME, DIM, asked), table.lookup(asked), rtol=2e-5, atol=1e-6
        )


def learn(
    engines: Sequence[Engine], steps: Sequence[Sequence[np.ndarray]], unseen: np.ndarray
) -> training.Table:
    """Trains, and checks after each step."""
    table, updates = reference(), opened_updates(engines)
    for keys in steps:
        gradients = train(engines, updates, keys)
        of_ranks = [
            training.sum_by_key(of_host, of_tables[list(TABLES).index(NAME)])
            for of_host, of_tables in zip(keys, gradients, strict=True)
        ]
        table.update(training.reduce(of_ranks, [len(of_host) for of_host in keys], "sum"))
        check(engines, table, unseen)
    return table


@HOSTS
def test_ids_of_a_log_in_order_of_time_get_rows_as_they_come(tmp_path: Path, hosts: int) -> None:
    steps = [
        # New ids, and some of the step before.
        [np.arange(100 * step - 20, 100 * step + 100)[host::hosts] for host in range(hosts)]
        for step in range(1, 8)
    ]
    with opened(tmp_path, hosts, [SHARDED] * 2) as engines:
        table = learn(engines, steps, unseen=np.arange(2000, 2010))
        distinct = {int(key) for keys in steps for of_host in keys for key in of_host}
        assert sum(stats_of(engine).rows for engine in engines) == len(table.rows) == len(distinct)


@HOSTS
def test_all_keys_may_fall_to_one_owner(tmp_path: Path, hosts: int) -> None:
    with opened(tmp_path, hosts, [SHARDED] * 2) as engines:
        own = np.arange(3000)[engines[-1].owned(NAME, np.arange(3000))][:90]
        # The other table has its keys elsewhere: a slot follows from its name, too.
        learn(engines, [[own[host::hosts] for host in range(hosts)]] * 3, unseen=own + 10**6)
        rows = [stats_of(engine).rows for engine in engines]
        assert rows == [0] * (hosts - 1) + [len(own)]


@HOSTS
def test_one_key_may_be_in_every_sample(tmp_path: Path, hosts: int) -> None:
    with opened(tmp_path, hosts, [SHARDED] * 2) as engines:
        steps = [[np.full(200, 7)] * hosts, [np.array([7, 8, 7, -9])] * hosts]
        learn(engines, steps, unseen=np.array([9]))
        assert sum(stats_of(engine).rows for engine in engines) == 3


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_host_has_its_share_of_the_bytes(tmp_path: Path, hosts: int) -> None:
    with opened(tmp_path, hosts, [SHARDED] * 2) as engines:
        updates = opened_updates(engines)
        for step in range(4):
            keys = np.arange(10_000 * step, 10_000 * (step + 1))
            train(engines, updates, [keys[host::hosts] for host in range(hosts)])
        bytes_of_hosts = [stats_of(engine).bytes for engine in engines]
        rows = [stats_of(engine).rows for engine in engines]
    assert sum(rows) == 40_000
    assert max(bytes_of_hosts) <= 1.1 * sum(bytes_of_hosts) / hosts
    assert max(rows) <= 1.1 * sum(rows) / hosts


# The bytes of shared memory that a host may use; a shard of 110,000 rows takes 22 MB, so that the
# table takes three times as much.
HOST_BYTES, HOST_COUNT, ROWS = 28 << 20, 4, 440_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting small tmpfs needs root")
@pytest.mark.parametrize("hosts", [1, HOST_COUNT])
def test_a_table_of_three_times_a_host_s_memory_trains_on_four(tmp_path: Path, hosts: int) -> None:
    mounts = "".join(
        f"mkdir {place} && mount -t tmpfs -o size={HOST_BYTES} tmpfs {place} && "
        for place in [tmp_path / str(host) for host in range(hosts)]
    )
    command = f"{sys.executable} -m tests.unit.core.small_hosts {tmp_path} {hosts} {ROWS}"
    run = subprocess.run(
        ["unshare", "--mount", "bash", "-c", mounts + "exec " + command],
        capture_output=True,
        text=True,
        check=False,
    )
    if hosts == 1:
        assert "No room for" in run.stderr
        assert "table 'user'" in run.stderr
        return
    assert run.returncode == 0, run.stderr
    rows, used = map(int, run.stdout.split())
    assert rows == ROWS
    assert used >= 3 * HOST_BYTES
