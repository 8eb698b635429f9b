"""Ranks that would wait for each other forever are named and end; a late one is logged."""

from __future__ import annotations

import re

import pytest

SCRIPT = "tests/integration/jobs/differing.py"
RANK = r"rank {} \(pid \d+ on [^)]+\)"


@pytest.mark.parametrize(
    ("way", "exchange", "wanted"),
    [
        (
            "table",
            "leaders",
            [r"step 3 of optimizer update_\d+ \(tables 'user', ", "Only rank 0.*: table "],
        ),
        ("table", "all_ranks", ["Only rank 0 .*: table 'item'"]),
        (
            "optimizer",
            "leaders",
            [r"step 3 of optimizer update_\d+", r"step 1 of optimizer update_\d+ \(4 dense "],
        ),
        (
            "first-step",
            "leaders",
            [r"step 3 of optimizer update_\d+", r"build 1 of optimizer update_\d+"],
        ),
        ("layer", "leaders", [r"Only rank 0 .*: variable 4 \(float32 \[4, 4\]\) '.*right/kernel'"]),
        ("other-layer", "leaders", ["Only rank 0 .*right/kernel'", "Only rank 1 .*left/kernel'"]),
    ],
)
def test_ranks_that_differ_are_named_on_every_rank(forked_jobs, way, exchange, wanted):
    job = forked_jobs.start({"localhost": 2}, SCRIPT, way, exchange)
    statuses, output = job.wait(), job.output
    assert 0 not in statuses, output
    sentence = "would wait for each other forever: " + RANK.format(0) + " in .*" + RANK.format(1)
    for rank in (0, 1):
        (line,) = re.findall(f".*{sentence}.*So rank {rank} .*ends too", output)
        for part in wanted:
            assert re.search(part, line), line
    assert "has died" not in output


def test_a_rank_that_comes_late_is_logged_and_changes_nothing(forked_jobs):
    late = forked_jobs.start({"localhost": 2}, SCRIPT, "late").succeed()
    waited = (
        r"Waited 10 s in step 3 of optimizer update_\d+ \(tables .*\): {}\. Not in a step.*: {}"
    )
    assert len(re.findall(waited.format(RANK.format(0), RANK.format(1)), late)) == 1, late
    assert late.count("Waited") == 1, late
    whole = forked_jobs.start({"localhost": 2}, SCRIPT, "none").succeed()
    assert "tfhybrid.watch" not in whole
    results = set(re.findall("trained .*", late + whole))
    assert len(results) == 1, results
