"""`fast_tier="device"`: what is gathered from variables are the bits of a lookup on the host."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.core.pass_trainers import ADAGRAD, TABLES
from tests.support.core.sharded_hosts import Hosts
from tests.unit.core.announced_passes import (
    CASES,
    EVERYWHERE,
    REFERENCES,
    STEPS,
    Rank,
    Without,
    check_reference,
    keys_of,
    trained,
)
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices
from tfhybrid.data.lookahead import Lookahead
from tfhybrid.errors import ConfigError
from tfhybrid.ops.device_lookup import DeviceRows
from tfhybrid.ops.lookup import FeatureKeys, TableRef

# Passes that end because the largest batch fills all bytes; and passes of one batch each.
JUST_A_BATCH, BY_BATCH = -1, -2


class Gathering:
    """Tables of an engine, of which lookups gather rows from variables.

    Args:
        engine: Whose tables.
        tables: Name and dim of each.
    """

    def __init__(self, engine: Engine, tables: Mapping[str, int] = TABLES) -> None:
        for name in tables:
            passes.add_to_device(engine, name)
        self.variables = DeviceRows(tables)
        with tf.device("CPU:0"):
            self._proxies = [tf.Variable(tf.zeros([0, dim])) for dim in tables.values()]
        self._tables = [
            TableRef(engine.number, name, dim, proxy.handle)
            for (name, dim), proxy in zip(tables.items(), self._proxies, strict=True)
        ]

    def __call__(self, *keys: np.ndarray) -> list[np.ndarray]:
        """Returns the rows of each table's keys."""
        features = [FeatureKeys(tf.constant(of_table, tf.int64)) for of_table in keys]
        values = [proxy.read_value() for proxy in self._proxies]
        found = self.variables.lookup(self._tables, features, values)
        return [rows.numpy() for rows in found]


class DeviceRank(Rank):
    """One that gathers, with passes of so many batches, as a data set announces them."""

    def __init__(self, engine: Engine, rank: int, length: int, choices: UpdateChoices) -> None:
        super().__init__(engine, rank, 0, choices)
        self._gather = Gathering(engine)
        self._batches = None if length == 0 else self._announced(length)

    def begin(self, step: int) -> None:
        assert self._batches is None or next(self._batches) == step

    def post(self, step: int) -> None:
        super().post(step)
        if self._batches is not None and step == STEPS - 1:
            self._batches.close()

    def rows_of(self, keys: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self._gather(*(keys[name] for name in TABLES))

    def _announced(self, length: int) -> Generator[int]:
        batches = [keys_of(step, self.rank) for step in range(STEPS)]
        most = max(passes.weigh(self.engine, [batch]) for batch in batches)
        lookahead = {
            JUST_A_BATCH: Lookahead(STEPS, max_bytes=most),
            BY_BATCH: Lookahead(1, ahead=3),
        }.get(length) or Lookahead(length)
        yield from lookahead.over(range(STEPS), batches.__getitem__, self.engine)


def check(seen: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    for rows, of_host in zip(seen, wanted, strict=True):
        np.testing.assert_array_equal(rows, of_host)
        assert rows.tobytes() == of_host.tobytes()  # zeros have signs


@pytest.mark.parametrize("case", ["adagrad", "adam", "clipped", "decay", "evicted"])
@pytest.mark.parametrize("length", [0, 1, 3, 7, JUST_A_BATCH])
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_rows_on_a_device_are_those_of_the_host(
    shm_directory: Path, request: pytest.FixtureRequest, hosts: int, length: int, case: str
) -> None:
    find: Without = request.getfixturevalue("without")
    seen, stats = trained(shm_directory, range(hosts), length, CASES[case], kind=DeviceRank)
    check(seen, find(hosts, case))
    for of_rank in stats:
        assert of_rank.device_bytes > 0
        assert of_rank.device_rows > 0


@pytest.mark.parametrize("case", REFERENCES)
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_rows_on_a_device_are_those_of_plain_numpy(
    shm_directory: Path, hosts: int, case: str
) -> None:
    check_reference(shm_directory, hosts, case, DeviceRank)


@pytest.mark.parametrize("length", [3, BY_BATCH])
@pytest.mark.parametrize("case", ["ftrl", "global", "strong_decay", "every_row"])
def test_awkward_optimizers_are_followed_too(
    shm_directory: Path, request: pytest.FixtureRequest, case: str, length: int
) -> None:
    find: Without = request.getfixturevalue("without")
    check(trained(shm_directory, range(2), length, CASES[case], kind=DeviceRank)[0], find(2, case))


def test_rows_in_files_are_followed_too(
    shm_directory: Path, request: pytest.FixtureRequest
) -> None:
    find: Without = request.getfixturevalue("without")
    case, cache_bytes = CASES["adam"], 1 << 20
    seen, _ = trained(shm_directory, range(2), 3, case, cache_bytes, kind=DeviceRank)
    check(seen, find(2, "adam"))


def test_ranks_of_a_host_have_variables_of_their_own(tmp_path: Path) -> None:
    found = []
    for kind, length in ((Rank, 0), (DeviceRank, 3)):
        (tmp_path / kind.__name__).mkdir()
        directory = tmp_path / kind.__name__
        found.append(trained(directory, [0, 0, 1, 1], length, CASES["adam"], kind=kind)[0])
    check(*found)


@pytest.fixture
def pair(shm_directory: Path) -> Iterator[list[Engine]]:
    """Two hosts with one table, `item`."""
    with Hosts(shm_directory, [0, 1], {"item": 4}, ADAGRAD) as engines:
        yield engines


def train(engines: Sequence[Engine], keys: np.ndarray) -> None:
    """Changes the rows of keys."""
    for engine in engines:
        update = engine.open_update("sgd", {"item": 4})
        update.post([keys], [np.ones((len(keys), 4), np.float32)], [0.1], samples=1)
    for engine in engines:
        engine.wait("item")


def test_rows_of_a_pass_are_copied_once_and_then_those_that_change(pair: list[Engine]) -> None:
    gather = Gathering(pair[0], {"item": 4})
    first, second, other = np.arange(50), np.arange(30, 90), np.arange(500, 510)

    def copied() -> int:
        return passes.stats(pair[0]).device_rows

    with passes.announce(pair[0], [{"item": first}, {"item": second}]) as announced:
        announced.begin(0)
        gather(first)
        assert copied() == 90
        # Twice the power of two that holds 90 rows of 16 bytes would hold more than the pass.
        assert passes.stats(pair[0]).device_bytes == 128 * 16
        gather(second)
        assert copied() == 90
        train(pair, np.arange(45, 55))
        announced.begin(1)
        gather(second)
        assert copied() == 100
        # Those that no pass has are copied each time, and the pass stays.
        gather(other)
        gather(other)
        gather(second)
        assert copied() == 120
    with passes.announce(pair[0], [{"item": np.arange(80, 100)}]) as announced:
        announced.begin(0)
        gather(np.arange(80, 85))
        assert copied() == 130  # half of them are there
        assert passes.stats(pair[0]).device_bytes == 128 * 16
        gather(np.arange(1000, 1500))
        assert passes.stats(pair[0]).device_bytes == 1024 * 16
        (rows,) = gather(np.arange(80, 100))
        np.testing.assert_array_equal(rows, pair[0].lookup("item", 4, np.arange(80, 100)))


def test_a_lookup_that_fails_lets_the_next_one_in(pair: list[Engine]) -> None:
    gather = Gathering(pair[0], {"item": 4})
    away = np.arange(100)[pair[1].owned("item", np.arange(100))]
    with passes.announce(pair[0], [{"item": away[:5]}], refuses=True) as announced:
        announced.begin(0)
        for keys in (away[:6], away[:5]):
            if len(keys) == 6:
                with pytest.raises(tf.errors.InvalidArgumentError, match="1 that were not"):
                    gather(keys)
            else:
                np.testing.assert_array_equal(gather(keys)[0], pair[0].lookup("item", 4, keys))


def test_variables_that_are_made_anew_are_filled_anew(pair: list[Engine]) -> None:
    """As by a second layer: each finds that the host had rows written elsewhere."""
    keys = np.arange(20)
    with passes.announce(pair[0], [{"item": keys}]) as announced:
        announced.begin(0)
        for _ in range(2):
            gather, other = (Gathering(pair[0], {"item": 4}) for _ in range(2))
            for one in (gather, other, gather):
                np.testing.assert_array_equal(one(keys)[0], pair[0].lookup("item", 4, keys))


def test_threads_look_up_one_after_the_other(pair: list[Engine]) -> None:
    gather = Gathering(pair[0], {"item": 4})
    wrong: list[int] = []

    def look_up(number: int) -> None:
        for step in range(40):
            keys = np.random.default_rng([number, step]).integers(0, 10_000, 20 + 10 * step)
            if not np.array_equal(gather(keys)[0], pair[0].lookup("item", 4, keys)):
                wrong.append(number)

    gather(np.arange(3))  # traced once
    with passes.announce(pair[0], [{"item": np.arange(0, 10_000, 7)}]) as announced:
        announced.begin(0)
        threads = [threading.Thread(target=look_up, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_bytes_of_the_device_end_a_pass_too(shm_directory: Path) -> None:
    """Also on one host, where nothing is fetched."""
    with Hosts(shm_directory, [0], {"item": 4}, ADAGRAD) as (engine,):
        batches = [{"item": np.arange(100 * step, 100 * (step + 1))} for step in range(8)]
        passes.add_to_device(engine, "item")
        assert passes.weigh(engine, batches[:2]) == 256 * 16
        gather = Gathering(engine, {"item": 4})
        lookahead = Lookahead(4, ahead=0, max_bytes=256 * 16)
        for step in lookahead.over(range(8), batches.__getitem__, engine):
            gather(batches[step]["item"])
            assert passes.stats(engine).device_bytes == 256 * 16
            assert passes.stats(engine).device_rows == 200 * (step // 2 + 1)
        tight = Lookahead(4, max_bytes=128 * 16 - 1)
        with pytest.raises(ConfigError, match="a batch of"):
            next(tight.over(range(8), batches.__getitem__, engine))
        # Without a pass, what a lookup wants is copied.
        (rows,) = gather(EVERYWHERE)
        np.testing.assert_array_equal(rows, engine.lookup("item", 4, EVERYWHERE))
