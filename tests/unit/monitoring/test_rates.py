"""What counters do in a second."""

from __future__ import annotations

from tfhybrid.monitoring.metrics import Metric, counters, rates


def test_rates_are_of_counters_that_both_readings_have() -> None:
    before = {"updates": 10.0, "rows": 5.0}
    now = {"updates": 30.0, "rows": 5.0, "served_rows": 7.0}
    assert rates(before, now, 2.0) == {"updates": 10.0, "rows": 0.0}
    assert rates(now, {"updates": 29.0}, 2.0) == {}  # another job
    assert rates(before, now, 0.0) == {}  # at the same time
    assert rates({}, now, 2.0) == {}


def test_counters_are_told_from_gauges() -> None:
    grows = Metric("updates", "counter", "Updates.", "table")
    changes = Metric("rows", "gauge", "Rows.", "table")
    of_node = Metric("bytes", "counter", "Bytes.", ("node", "role"))
    reading = [(grows, {"item": 3.0}), (changes, {"item": 7.0}), (of_node, {("a", "data"): 1.0})]
    assert counters(reading) == {("updates", "item"): 3.0, ("bytes", ("a", "data")): 1.0}
