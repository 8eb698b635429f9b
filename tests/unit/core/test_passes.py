"""Passes: rows that come ahead of time are those that a lookup would have brought, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.core.pass_trainers import ADAGRAD, ADAM, TABLES
from tests.support.core.sharded_hosts import Hosts
from tests.unit.core.announced_passes import (
    CASES,
    REFERENCES,
    STEPS,
    Rank,
    Without,
    check_reference,
    keys_of,
    trained,
)
from tfhybrid.cli import top_command
from tfhybrid.cli.main import app
from tfhybrid.core import passes
from tfhybrid.data.lookahead import Lookahead
from tfhybrid.errors import ConfigError, PeerDiedError
from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.report import PassReport, report_stores


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_a_pass_changes_no_bit(
    shm_directory: Path, without: Without, hosts: int, length: int, case: str
) -> None:
    seen, stats = trained(shm_directory, range(hosts), length, CASES[case])
    for rows, wanted in zip(seen, without(hosts, case), strict=True):
        np.testing.assert_array_equal(rows, wanted)
    for of_rank in stats:
        assert (of_rank.hits > 0) == (hosts > 1)
        # Each row comes once for a pass, or is there from the one before.
        assert of_rank.fetched == of_rank.requested


def bytes_for_a_step(hosts: int, states: int) -> int:
    """Returns a cache for the rows of any step on the owner that has most of them."""
    most = max(
        len(np.unique(np.concatenate([keys_of(step, rank)["user"] for rank in range(hosts)])))
        for step in range(STEPS)
    )
    # A hash deals them out to owners.
    slots = most if hosts == 1 else round(1.5 * most / hosts)
    return slots * (4 * (1 + states) * TABLES["user"] + 16)


@pytest.mark.parametrize("case", ["adagrad", "clipped"])
@pytest.mark.parametrize("length", [0, 1, 3, 7])
@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("cache", ["ample", "tight"])
def test_rows_in_files_come_ahead_of_time_too(
    shm_directory: Path, without: Without, hosts: int, length: int, cache: str, case: str
) -> None:
    """Those of this host as well, so that a lookup reads no disk."""
    states = 2 if CASES[case].optimizer is ADAM else 1
    cache_bytes = 1 << 20 if cache == "ample" else bytes_for_a_step(hosts, states)
    seen, stats = trained(shm_directory, range(hosts), length, CASES[case], cache_bytes)
    for rows, wanted in zip(seen, without(hosts, case), strict=True):
        np.testing.assert_array_equal(rows, wanted)
    if hosts == 1:
        return  # passes do nothing
    distinct = sum(
        len(np.unique(keys)) for step in range(STEPS) for keys in keys_of(step, 0).values()
    )
    # Evaluations, which nobody has announced, find some of theirs, too.
    assert stats[0].hits >= distinct if length else stats[0].hits == 0


class FewOfMany(Rank):
    """One that trains few of many keys a step, most of which are not in the cache.

    Attributes:
        hits: Rows of its host that updates found in the cache.
    """

    steps = 60
    hits = 0

    def keys_of(self, step: int) -> dict[str, np.ndarray]:
        """Returns the keys of a batch, some of them twice."""
        random = np.random.default_rng([step, self.rank])
        return {name: random.integers(-60, 260, 10) for name in TABLES}

    def evaluate(self) -> None:
        """Looks up what nobody has announced, and counts."""
        super().evaluate()
        self.hits = self.engine.table_stats("user").cache_hits


@pytest.mark.parametrize("case", ["adagrad", "clipped", "decay"])
def test_announced_rows_are_in_the_cache_before_their_update(tmp_path: Path, case: str) -> None:
    states = 2 if CASES[case].optimizer["kind"] == ADAM["kind"] else 1
    cache_bytes = 80 * (4 * (1 + states) * TABLES["user"] + 16)
    hits, seen = {}, {}
    for length, files in ((0, 0), (0, cache_bytes), (2, cache_bytes)):
        ranks: list[FewOfMany] = []

        def kind(*arguments: Any, ranks: list[FewOfMany] = ranks) -> FewOfMany:
            ranks.append(FewOfMany(*arguments))
            return ranks[-1]

        directory = tmp_path / f"{length}-{files}"
        directory.mkdir()
        seen[length, files], _ = trained(directory, [0, 1], length, CASES[case], files, kind)
        hits[length, files] = sum(rank.hits for rank in ranks)
    for found in (seen[0, cache_bytes], seen[2, cache_bytes]):
        for rows, wanted in zip(found, seen[0, 0], strict=True):
            np.testing.assert_array_equal(rows, wanted)
    assert hits[2, cache_bytes] > hits[0, cache_bytes] > 0


@pytest.mark.parametrize("case", ["adam", "decay", "evicted"])
def test_ranks_of_a_host_share_what_comes(tmp_path: Path, case: str) -> None:
    found = {}
    for length in (0, 3):
        (tmp_path / str(length)).mkdir()
        found[length], stats = trained(tmp_path / str(length), [0, 0, 1, 1], length, CASES[case])
    for rows, wanted in zip(found[3], found[0], strict=True):
        np.testing.assert_array_equal(rows, wanted)
    for leader in (stats[0], stats[2]):
        assert leader.fetched == leader.requested
        assert leader.copied > 0


def test_an_owner_sends_what_is_used_later_and_nothing_else(shm_directory: Path) -> None:
    with Hosts(shm_directory, [0, 1], {"item": 4}, ADAGRAD) as engines:
        updates = [engine.open_update("sgd", {"item": 4}) for engine in engines]
        away = np.arange(200)[engines[1].owned("item", np.arange(200))][:4]
        now, then = away[:3], away[2:]  # one key in both batches
        with passes.announce(engines[0], [{"item": now}, {"item": then}]) as announced:
            announced.begin(0)
            engines[0].lookup("item", 4, now)
            for keys, expected in ((away, 2), (away, 0)):
                before = passes.stats(engines[0]).refreshed
                for update in updates:
                    update.post([keys], [np.ones((len(keys), 4), np.float32)], [0.1], samples=1)
                for engine in engines:
                    engine.wait("item")
                rows = engines[0].lookup("item", 4, away)
                np.testing.assert_array_equal(rows, engines[1].lookup("item", 4, away))
                assert passes.stats(engines[0]).refreshed - before == expected
        told = passes.stats(engines[0])
        assert (told.requested, told.fetched) == (4, 4)
        # The batches wanted 3 of the keys and then 2, but after the first one 4 were looked up,
        # and a pass that is used up is not open.
        assert (told.hits, told.misses) == (3 + 2, 2)


def test_a_key_that_was_not_announced_is_fetched_or_refused(shm_directory: Path) -> None:
    with Hosts(shm_directory, [0, 1], {"item": 4}, ADAGRAD) as engines:
        away = np.arange(100)[engines[1].owned("item", np.arange(100))]
        with passes.announce(engines[0], [{"item": away[:5]}]) as announced:
            announced.begin(0)
            assert engines[0].lookup("item", 4, np.arange(100)).shape == (100, 4)
            told = passes.stats(engines[0])
            assert (told.hits, told.misses) == (5, len(away) - 5)
        with passes.announce(engines[0], [{"item": away[:5]}], refuses=True) as announced:
            announced.begin(0)
            engines[0].lookup("item", 4, away[:5])
            told = rf"table 'item'.* announced\. Received: 1 that .*, {away[5]} .* on rank 0$"
            with pytest.raises(ConfigError, match=told):
                engines[0].lookup("item", 4, away[:6])
            with pytest.raises(ConfigError, match=r"has 1 batches\. Received: batch 1"):
                announced.begin(1)
        engines[0].lookup("item", 4, away[:6])  # no pass is open


def test_what_passes_do_is_seen_from_outside(tmp_path: Path) -> None:
    """By `store show`, `top` and Prometheus, from counters in shared memory."""
    with Hosts(tmp_path, [0, 0, 1], {"item": 4}, ADAGRAD) as engines:
        updates = [engine.open_update("sgd", {"item": 4}) for engine in engines]
        keys = np.arange(100)
        away = keys[engines[2].owned("item", keys)]
        (before,) = report_stores(tmp_path / "0")
        assert before.passes == PassReport()
        with (
            passes.announce(engines[0], [{"item": keys}, {"item": keys}]) as first,
            passes.announce(engines[1], [{"item": keys}]) as second,
        ):
            for engine, announced in zip(engines, (first, second), strict=False):
                announced.begin(0)
                engine.lookup("item", 4, keys)
            engines[0].lookup("item", 4, np.arange(100, 140))
            for update in updates:
                update.post([keys], [np.ones((100, 4), np.float32)], [0.1], samples=1)
            engines[0].lookup("item", 4, keys)
            for engine in engines:
                engine.wait("item")
            (now,) = report_stores(tmp_path / "0")
            (other,) = report_stores(tmp_path / "1")
            of_ranks = [passes.stats(engine) for engine in engines]
            files = [file.stat().st_size for file in (tmp_path / "0").glob("*/pass-0-*")]
            files += [file.stat().st_size for file in (tmp_path / "0").glob("*/pass-1-*")]
        told = now.passes
        assert (told.standing, told.rows, told.bytes) == (2, 2 * len(away), sum(files))
        assert told.announced == 2
        assert told.hits == of_ranks[0].hits + of_ranks[1].hits == 3 * len(away)
        assert told.misses == of_ranks[0].misses > 0
        assert told.fetched == told.refreshed == len(away)
        assert (told.written, other.passes.written) == (100 - len(away), len(away))
        assert of_ranks[0].written == told.written
        assert sum(of_rank.standing_bytes for of_rank in of_ranks) == told.bytes
        assert sum(of_rank.standing_rows for of_rank in of_ranks) == told.rows
        values = {metric.name: its for metric, its in metrics.of_store(now)}
        assert values["pass_keys"] == {"hit": told.hits, "miss": told.misses}
        assert values["pass_rows"]["written_back"] == told.written
        assert values["fast_tier_bytes"] == {"": told.bytes}
        counted = [metrics.counters(metrics.of_store(store)) for store in (before, now)]
        caption = str(top_command.tables_table(now, metrics.rates(*counted, 2.0)).caption)
        assert f"passes: 2 open, {told.rows} rows" in caption
        assert f"a second: {told.hits / 2:,.0f} hits" in caption
        job = ["store", "show", now.job, "--shm-dir", str(tmp_path / "0")]
        shown = CliRunner().invoke(app, job).output
        assert "written back" in shown
        assert "0 open: 0 rows, 0 bytes" in shown


def test_rows_that_are_overwritten_end_the_passes(shm_directory: Path) -> None:
    """As a checkpoint is restored: every rank ends its passes, then leaders write rows."""
    with Hosts(shm_directory, [0, 1], {"item": 4}, ADAGRAD) as engines:
        keys = np.arange(100)
        first = engines[0].lookup("item", 4, keys)
        announced = passes.announce(engines[0], [{"item": keys}])
        announced.begin(0)
        np.testing.assert_array_equal(engines[0].lookup("item", 4, keys), first)
        for engine in engines:
            passes.end_all(engine)
        for engine in engines:
            update = engine.open_update("sgd", {"item": 4})
            update.post([keys], [np.ones((100, 4), np.float32)], [0.1], samples=1)
        again = passes.announce(engines[0], [{"item": keys}])
        again.begin(0)
        changed = engines[0].lookup("item", 4, keys)
        assert (changed != first).all()
        np.testing.assert_array_equal(changed, engines[1].lookup("item", 4, keys))
        announced.end()
        again.end()


def test_an_owner_that_is_gone_is_named(shm_directory: Path) -> None:
    with Hosts(shm_directory, [0, 1], {"item": 4}, ADAGRAD) as engines:
        away = np.arange(100)[engines[1].owned("item", np.arange(100))]
        engines[1].close_store()
        with passes.announce(engines[0], [{"item": away}]) as announced:
            announced.begin(0)
            with pytest.raises(PeerDiedError, match="rank 1"):
                engines[0].lookup("item", 4, away)


def used(directory: Path, lookahead: Lookahead) -> tuple[list[int], int]:
    """How many passes stand at each of 12 batches, and the most bytes that they take together."""
    with Hosts(directory, [0, 1], TABLES, ADAGRAD) as engines:
        batches = lookahead.over(range(12), lambda step: keys_of(step, 0), engines[0])
        standing, most = [], 0
        for step, batch in enumerate(batches):
            assert batch == step
            files = [file.stat().st_size for file in (directory / "0").glob("*/pass-0-*")]
            standing.append(len(files))
            most = max(most, sum(files))
            for name, dim in TABLES.items():
                engines[0].lookup(name, dim, keys_of(step, 0)[name])
        assert not list((directory / "0").glob("*/pass-0-*"))
        assert passes.stats(engines[0]).misses == 0
        return standing, most


def test_the_next_pass_is_prepared_while_one_is_used(tmp_path: Path) -> None:
    for name in ("whole", "batch", "ample", "tight"):
        (tmp_path / name).mkdir()
    standing, most = used(tmp_path / "whole", Lookahead(length=5))
    assert standing == [2] * 10 + [1] * 2
    assert used(tmp_path / "batch", Lookahead(1, ahead=3))[0] == [4] * 9 + [3, 2, 1]
    ample = Lookahead(5, max_bytes=most)
    assert used(tmp_path / "ample", ample) == (standing, most)
    # Pages of which the largest batch fills all: each is a pass, and waits for the one before.
    with Hosts(tmp_path, [0, 1], TABLES, ADAGRAD) as engines:
        sizes = [passes.weigh(engines[0], [keys_of(step, 0)]) for step in range(12)]
    tight = Lookahead(5, max_bytes=max(sizes))
    standing, most = used(tmp_path / "tight", tight)
    assert (standing, most) == ([1] * 12, max(sizes))


def test_a_batch_that_does_not_fit_alone_is_an_error_that_says_sizes(shm_directory: Path) -> None:
    with Hosts(shm_directory, [0, 1], TABLES, ADAGRAD) as engines:
        size = passes.weigh(engines[0], [keys_of(0, 0)])
        small = Lookahead(2, max_bytes=size - 1)
        with pytest.raises(ConfigError, match=f"is {size - 1} bytes.*a batch of {size} bytes"):
            next(small.over([0], lambda step: keys_of(step, 0), engines[0]))


@pytest.mark.parametrize("case", REFERENCES)
def test_what_is_trained_is_the_reference(shm_directory: Path, case: str) -> None:
    check_reference(shm_directory, 2, case)
