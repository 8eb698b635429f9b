"""`gather_on="device"`: what is gathered has the bits of a lookup that gathers on the host."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.core.gathering import Gathering
from tests.support.core.pass_trainers import ADAGRAD, TABLES
from tests.support.core.sharded_hosts import Hosts
from tests.unit.core.announced_passes import (
    CASES,
    EVERYWHERE,
    REFERENCES,
    Rank,
    Without,
    check_reference,
    trained,
)
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices


class DeviceRank(Rank):
    """One that gathers on a device."""

    def __init__(self, engine: Engine, rank: int, length: int, choices: UpdateChoices) -> None:
        super().__init__(engine, rank, length, choices)
        self._gather = Gathering(engine)

    def rows_of(self, keys: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self._gather(*(keys[name] for name in TABLES))


def check(seen: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    for rows, of_host in zip(seen, wanted, strict=True):
        np.testing.assert_array_equal(rows, of_host)
        assert rows.tobytes() == of_host.tobytes()  # zeros have signs


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_rows_on_a_device_are_those_of_the_host(
    shm_directory: Path, request: pytest.FixtureRequest, hosts: int, length: int, case: str
) -> None:
    find: Without = request.getfixturevalue("without")
    seen, _ = trained(shm_directory, range(hosts), length, CASES[case], kind=DeviceRank)
    check(seen, find(hosts, case))


@pytest.mark.parametrize("case", REFERENCES)
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_rows_on_a_device_are_those_of_plain_numpy(
    shm_directory: Path, hosts: int, case: str
) -> None:
    check_reference(shm_directory, hosts, case, DeviceRank)


def test_rows_in_files_are_read_too(shm_directory: Path, request: pytest.FixtureRequest) -> None:
    find: Without = request.getfixturevalue("without")
    case, cache_bytes = CASES["adam"], 1 << 20
    seen, _ = trained(shm_directory, range(2), 3, case, cache_bytes, kind=DeviceRank)
    check(seen, find(2, "adam"))


def test_ranks_of_a_host_gather_for_themselves(tmp_path: Path) -> None:
    found = []
    for kind, length in ((Rank, 0), (DeviceRank, 3)):
        (tmp_path / kind.__name__).mkdir()
        directory = tmp_path / kind.__name__
        found.append(trained(directory, [0, 0, 1, 1], length, CASES["adam"], kind=kind)[0])
    check(*found)


def test_rows_that_no_pass_has_can_be_refused(shm_directory: Path) -> None:
    with Hosts(shm_directory, [0, 1], {"item": 4}, ADAGRAD) as engines:
        gather = Gathering(engines[0], {"item": 4})
        away = np.arange(100)[engines[1].owned("item", np.arange(100))]
        with passes.announce(engines[0], [{"item": away[:5]}], refuses=True) as announced:
            announced.begin(0)
            with pytest.raises(tf.errors.InvalidArgumentError, match="1 that were not"):
                gather(away[:6])
            (rows,) = gather(away[:5])
            np.testing.assert_array_equal(rows, engines[0].lookup("item", 4, away[:5]))


def test_threads_look_up_side_by_side(shm_directory: Path) -> None:
    """Also keys that occur several times, or once each, and tables of several dims."""
    with Hosts(shm_directory, [0, 1], TABLES, ADAGRAD) as engines:
        engine, gather = engines[0], Gathering(engines[0])
        wrong: list[int] = []

        def look_up(number: int) -> None:
            for step in range(40):
                random = np.random.default_rng([number, step])
                most = 10 if step % 2 else 10_000
                keys = [random.integers(0, most, (20 + 10 * step, 1)) for _ in TABLES]
                keys[-1] = EVERYWHERE[step:, np.newaxis]
                wanted = [
                    engine.lookup(name, dim, of_table)
                    for (name, dim), of_table in zip(TABLES.items(), keys, strict=True)
                ]
                if not all(map(np.array_equal, gather(*keys), wanted)):
                    wrong.append(number)

        threads = [threading.Thread(target=look_up, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
