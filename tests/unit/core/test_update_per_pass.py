"""An update per pass: batches see the rows as they were fetched, and make one update together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.core import pass_trainers
from tests.support.core.pass_trainers import CASES, Outcome, Rank, keys_of
from tests.support.core.sharded_hosts import Hosts
from tfhybrid.core import passes
from tfhybrid.data.lookahead import Lookahead
from tfhybrid.errors import ConfigError

BATCHES = 16
OWNERS = {1: [0, 0, 0], 2: [0, 0, 1], 3: [0, 1, 2]}  # the host of each of three ranks

Without = Callable[[str, tuple[int, ...], tuple[int, ...]], Outcome]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Without:
    """Trains with passes of given lengths on one host, where nothing is announced."""
    found: dict[tuple, Outcome] = {}

    def find(case: str, counts: tuple[int, ...], lengths: tuple[int, ...]) -> Outcome:
        if (case, counts, lengths) not in found:
            directory = tmp_path_factory.mktemp("without")
            found[case, counts, lengths] = pass_trainers.trained(
                directory, OWNERS[1], CASES[case], counts, [None] * 3, lengths
            )
        return found[case, counts, lengths]

    return find


def check(found: Outcome, case: str, counts: tuple[int, ...], without: Without) -> None:
    """Compares with the same updates without announcements, and with NumPy."""
    assert sum(found.lengths) == max(counts)
    assert found.misses == 0
    wanted = without(case, counts, tuple(found.lengths))
    for rows, others in zip(found.seen, wanted.seen, strict=True):
        np.testing.assert_array_equal(rows, others)
    if CASES[case].reference is not None:
        expected = pass_trainers.reference(CASES[case], counts, found.lengths)
        for name, rows in found.at_end.items():
            np.testing.assert_allclose(rows, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("owners", OWNERS)
def test_with_ample_room_it_is_an_update_of_as_many_batches(
    shm_directory: Path, without: Without, owners: int, length: int, case: str
) -> None:
    counts = (BATCHES,) * 3
    found = pass_trainers.trained(
        shm_directory, OWNERS[owners], CASES[case], counts, [Lookahead(length)] * 3
    )
    whole, rest = divmod(BATCHES, length)
    assert found.lengths == [length] * whole + [rest] * (rest > 0)
    check(found, case, counts, without)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("owners", OWNERS)
def test_bytes_of_one_rank_end_the_passes_of_all(
    shm_directory: Path, without: Without, owners: int, length: int, case: str
) -> None:
    """Rank 2 has room for its largest batch; the others for as many batches as they like."""
    counts = (BATCHES,) * 3
    (shm_directory / "sizes").mkdir()
    with Hosts(shm_directory / "sizes", OWNERS[owners], pass_trainers.TABLES, {"kind": 1}) as hosts:
        most = max(passes.weigh(hosts[2], [keys_of(step, 2)]) for step in range(BATCHES))
        lookaheads = [Lookahead(length, max_bytes=room) for room in (1 << 30, 1 << 30, most)]
        expected = lengths_that_fit(hosts, lookaheads)
    found = pass_trainers.trained(shm_directory, OWNERS[owners], CASES[case], counts, lookaheads)
    assert found.lengths == expected
    assert (length == 7 and owners > 1) == (max(found.lengths) < length)
    check(found, case, counts, without)


@pytest.mark.parametrize("fetch", ["pass", "batch"])
def test_data_that_end_first_end_the_pass(
    shm_directory: Path, without: Without, fetch: str
) -> None:
    """After it, the ranks that have data go on without the one that has none."""
    counts = (16, 9, 0)
    lookahead = Lookahead(7) if fetch == "pass" else Lookahead(1, ahead=7)
    found = pass_trainers.trained(shm_directory, OWNERS[3], CASES["adam"], counts, [lookahead] * 3)
    assert found.lengths == [7, 2, 7]
    check(found, "adam", counts, without)


@pytest.mark.parametrize("room", [2.5, 3.5, 5.2])
def test_what_falls_out_of_a_pass_comes_first_in_the_next(
    shm_directory: Path, without: Without, room: float
) -> None:
    """Two ranks end their passes by bytes, at different batches."""
    counts = (BATCHES,) * 3
    lookaheads = []
    with Hosts(shm_directory, OWNERS[3], pass_trainers.TABLES, {"kind": 1}) as hosts:
        for rank, most in enumerate((room, 4.2, 1000)):
            size = passes.weigh(hosts[rank], [keys_of(step, rank) for step in range(6, 8)]) / 2
            lookaheads.append(Lookahead(7, max_bytes=int(size * most)))
        expected = lengths_that_fit(hosts, lookaheads)
    (shm_directory / "trained").mkdir()
    found = pass_trainers.trained(
        shm_directory / "trained", OWNERS[3], CASES["adam"], counts, lookaheads
    )
    assert found.lengths == expected
    assert len(set(expected)) > 1
    check(found, "adam", counts, without)


def lengths_that_fit(hosts: list, lookaheads: list[Lookahead]) -> list[int]:
    """Of passes that each rank fills from the first batch that was not trained yet."""
    lengths: list[int] = []
    while (first := sum(lengths)) < BATCHES:
        fitting = []
        for rank, lookahead in enumerate(lookaheads):
            assert lookahead.max_bytes is not None
            for count in range(1, min(lookahead.length, BATCHES - first) + 1):
                keys = [keys_of(step, rank) for step in range(first, first + count)]
                if passes.weigh(hosts[rank], keys) <= lookahead.max_bytes:
                    most = count
            fitting.append(most)
        lengths.append(min(fitting))
    return lengths


def test_a_batch_that_is_not_trained_when_it_comes_is_an_error(shm_directory: Path) -> None:
    with Hosts(shm_directory, [0, 1], pass_trainers.TABLES, pass_trainers.ADAM) as engines:
        rank = Rank(engines[0], 0, BATCHES, Lookahead(3), clips=False)
        assert [rank.next() for _ in range(5)] == [0, 1, 2, 3, 4]  # as an evaluation does
        rank.train(0)  # what ran ahead
        with pytest.raises(ConfigError, match=r"comes last.*Received: 5 batches begun and 1 "):
            rank.next()
