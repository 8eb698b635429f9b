"""The cost model of the exchange between hosts."""

from __future__ import annotations

import pytest

from tfhybrid.distributed import Link
from tfhybrid.ops.table_ops import ExchangeStats
from tfhybrid.optimizers.route_choice import ALLGATHER, OWNER_REDUCE, Load, RouteChoice, predict

GIGABIT = Link(latency=1e-3, gather_byte=8e-9, scatter_byte=8e-9)
SLOW_START = Link(latency=1.0, gather_byte=8e-9, scatter_byte=8e-9)


def load(hosts: int, shared: float) -> Load:
    """Each host has 50,000 keys, of which it shares so many with all others."""
    merged = 50_000
    return Load(
        hosts=hosts,
        merged_keys=merged,
        received_keys=hosts * merged,
        updated_keys=merged * (shared + hosts * (1 - shared)),
        key_bytes=74,
        merge_seconds=5e-8,
    )


def test_the_bytes_of_an_allgather_are_those_of_the_other_hosts() -> None:
    free = Link(0.0, 1.0, 1.0)
    for hosts in (2, 4, 6):
        given = load(hosts, 0.5)
        seconds, _ = predict(given, free)
        merging = given.merge_seconds * given.received_keys
        assert seconds - merging == pytest.approx((hosts - 1) * 50_000 * 74)


@pytest.mark.parametrize(
    ("hosts", "shared", "better"),
    [(2, 0.0, ALLGATHER), (2, 0.9, ALLGATHER), (6, 0.0, ALLGATHER), (6, 0.9, OWNER_REDUCE)],
)
def test_owners_pay_where_hosts_share_keys(hosts, shared, better) -> None:
    allgather, owner_reduce = predict(load(hosts, shared), GIGABIT)
    assert (owner_reduce < allgather) == (better == OWNER_REDUCE)


def test_a_second_collective_costs_its_latency() -> None:
    fast = predict(load(4, 0.9), GIGABIT)
    slow = predict(load(4, 0.9), SLOW_START)
    assert slow[0] - fast[0] == pytest.approx(SLOW_START.latency - GIGABIT.latency)
    assert slow[1] - fast[1] == pytest.approx(2 * (SLOW_START.latency - GIGABIT.latency))


def test_the_choice_is_made_once_and_told_once() -> None:
    choice = RouteChoice(GIGABIT, hosts=6)
    stats = ExchangeStats(0, 60_000, 50_000, 300_000, 75_000, 3_000_000, 90_000_000, 5_000_000)
    lines = []
    routes = []
    for _ in range(24):
        lines.append(choice.add(stats, words=300_000 * 9))
        routes.append(choice.route)
    assert routes == [ALLGATHER] * 11 + [OWNER_REDUCE] * 13
    assert [bool(line) for line in lines] == [False] * 23 + [True]
    assert "by owner-reduce: predicted" in lines[-1]
    assert "measured 95.0 ms" in lines[-1]


def test_steps_correct_a_link_that_let_the_probe_pass_as_a_burst() -> None:
    """All steps alike: 120 ms for 18.5 MB, and 5 ms of merging that the model has as 15."""
    choice = RouteChoice(Link(latency=1e-3, gather_byte=1e-10, scatter_byte=2e-10), hosts=6)
    stats = ExchangeStats(0, 60_000, 50_000, 300_000, 290_000, 3_000_000, 120_000_000, 5_000_000)
    line = [choice.add(stats, words=300_000 * 37 // 4) for _ in range(24)][-1]
    assert "by allgather: predicted 135.0 ms a step, measured 125.0 ms" in line
