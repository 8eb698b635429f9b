"""What nodes do in a second."""

from __future__ import annotations

from tfhybrid.cluster.rates import Rates


def test_rates_are_of_counts_that_were_told_twice() -> None:
    times = iter([0.0, 2.0, 2.0, 4.0, 6.0])
    rates = Rates(lambda: next(times))
    assert rates.of({"updates": 10.0, "rows": 5.0}) == {}
    assert rates.of({"updates": 30.0, "rows": 9.0, "served_rows": 7.0}) == {
        "updates_per_second": 10.0
    }
    assert rates.of({"updates": 31.0}) == {}  # at the same time
    assert rates.of({"updates": 0.0}) == {}  # another job
    assert rates.of({"updates": 8.0}) == {"updates_per_second": 4.0}
