"""Seconds to quality: which learning rate is chosen, and what the runs of a side add up to."""

from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks.quality.time_to_auc import numbered
from benchmarks.quality.time_to_auc.__main__ import best_rate, summarize, table_of
from benchmarks.quality.time_to_auc.clock import Clock, first
from benchmarks.support.report.charts import CHARTS
from tfhybrid.data import Batches, Clicks, Shard


def run(side: str, seconds: float | None, rate: float = 1e-3, best: float = 0.99) -> dict:
    reached = None if seconds is None else {"samples": 1000 * seconds, "seconds": seconds}
    return {"side": side, "rate": rate, "best_auc": best, "reached": {"0.98": reached}}


def test_the_first_score_of_at_least_the_target_counts():
    curve = [(10, 1.0, 0.5), (20, 2.0, 0.8), (30, 3.0, 0.7), (40, 4.0, 0.9)]
    assert first(curve, 0.8) == {"samples": 20, "seconds": 2.0}
    assert first(curve, 0.85) == {"samples": 40, "seconds": 4.0}
    assert first(curve, 0.95) is None


def test_the_best_rate_needs_the_fewest_samples():
    runs = [run("plain", 5.0, 1e-3), run("plain", 3.0, 3e-3), run("plain", None, 1e-2, best=0.999)]
    assert best_rate(runs, "0.98") == 3e-3


def test_rates_that_never_reach_the_target_are_ranked_by_their_best_auc():
    runs = [run("plain", None, 1e-3, best=0.6), run("plain", None, 3e-3, best=0.7)]
    assert best_rate(runs, "0.98") == 3e-3


def test_a_run_that_never_reaches_a_target_is_infinitely_long():
    summary = summarize([run("plain", 4.0), run("plain", None), run("plain", 2.0)])
    assert summary["plain"]["0.98"] == {
        "runs": 3,
        "reached": 2,
        "seconds": {"median": 4.0, "least": 2.0, "most": None},
        "samples": {"median": 4000.0, "least": 2000.0, "most": None},
    }
    assert table_of(summary, {"plain": 1e-3}).row_count == 1


@pytest.mark.parametrize(("seconds", "bars"), [(2.0, 2), (None, 1)])
def test_the_chart_has_the_medians_that_were_reached(seconds, bars):
    summary = summarize([run("plain", 4.0), run("tfhybrid", seconds)])
    (chart,) = CHARTS["time_to_auc"](
        {
            "setting": {"ranks": 2, "seeds": [0]},
            "rates": {"plain": 1e-3, "tfhybrid": 3e-3},
            "summary": summary,
        }
    )
    assert chart.bars["plain Horovod, 0.98"] == 4.0
    assert len(chart.bars) == bars
    assert "plain Horovod, 0.98: 4.0 s to 4.0 s, 4,000 samples." in chart.meaning
    assert ("0 of 1 seeds reach it" in chart.meaning) == (seconds is None)


def test_the_clock_stands_while_it_scores():
    scores = iter([0.5, 0.7, 0.9])
    waits = []

    def score() -> float:
        time.sleep(0.2)
        return next(scores)

    clock = Clock(score, lambda: waits.append(None), samples=30, batch=8, every=2, targets=[0.6])
    started = time.perf_counter()
    steps = [(epoch, step) for epoch in range(2) for step in range(4)]
    ended = [clock.step_ended(*step) for step in steps[:4]]
    assert ended == [False, False, False, True]
    assert [(samples, auc) for samples, _, auc in clock.curve] == [(16, 0.5), (30, 0.7)]
    assert clock.stopped(score) == 0.9
    assert clock.curve[-1][1] <= time.perf_counter() - started - 0.4
    assert len(waits) == 5  # at the start, after the first step, and before each score


def clicks_of(keys: list[int]) -> Clicks:
    return Clicks({"user": np.array(keys)}, np.arange(len(keys), dtype=np.float32))


def test_row_numbers_stand_for_the_same_keys_in_all_parts(tmp_path):
    parts, rows = numbered.numbered([clicks_of(each) for each in ([70, -3, 70], [500], [-3, 500])])
    assert rows == {"user": 3}
    numbered.save(tmp_path / "parts.npz", parts)
    read = numbered.load(tmp_path / "parts.npz")
    assert {part: clicks.features["user"].tolist() for part, clicks in read.items()} == {
        "train": [1, 0, 1],
        "valid": [2],
        "test": [0, 2],
    }
    assert read["test"].label.tolist() == [0.0, 1.0]


def test_sides_without_tensorflow_take_the_same_batches():
    clicks, shard = clicks_of(list(range(100, 129))), Shard(1, 2)
    theirs = iter(Batches(clicks, 4, seed=3, shard=shard).dataset(epochs=2))
    for epoch in range(2):
        for batch in numbered.batches(clicks, 8, shard, 3, epoch):
            users, labels = next(theirs)
            np.testing.assert_array_equal(users["user"][:, 0], batch.features["user"])
            np.testing.assert_array_equal(np.ravel(labels), batch.label)
    assert next(theirs, None) is None
