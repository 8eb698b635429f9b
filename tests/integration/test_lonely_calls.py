"""A collective call that one rank makes alone is named on all ranks, and is never mixed up."""

from __future__ import annotations

import re

import pytest

SCRIPT = "tests/integration/jobs/lonely_call.py"
RANK = r"rank {} \(pid \d+ on [^)]+\)"
NAMES = {
    "save": "checkpoint.save",
    "restore": "checkpoint.restore",
    "evaluate": "metrics.evaluate",
    "saved_model": "export.saved_model",
    "load": "Table.load",
    "broadcast": "callbacks.BroadcastVariables",
}


def warning(call: str, place: str) -> str:
    """The line that both ranks log about rank 0's first call."""
    return (
        rf"Waited 8 s in call 1 of {re.escape(NAMES[call])}: {RANK.format(0)}\. "
        rf"Not there: {RANK.format(1)} \({place}"
    )


@pytest.mark.parametrize("call", ["save", "broadcast"])
def test_a_call_that_waits_is_named_on_both_ranks_and_goes_on(forked_jobs, call):
    output = forked_jobs.start({"localhost": 2}, SCRIPT, "late", call).succeed()
    assert len(re.findall(warning(call, "Not in a step, or stopped"), output)) == 2, output
    assert output.count("made the call") == 2


def test_a_rank_that_trains_meanwhile_is_told_so(forked_jobs):
    job = forked_jobs.start({"localhost": 2}, SCRIPT, "step", "saved_model")
    job.wait_for(warning("saved_model", r"Waiting in step \d+ of optimizer"), 2)
    job.kill()


@pytest.mark.parametrize("call", ["restore", "evaluate", "load"])
def test_messages_of_different_calls_do_not_mix(forked_jobs, call):
    job = forked_jobs.start({"localhost": 2}, SCRIPT, "other", call)
    assert 0 not in job.wait(), job.output
    other = NAMES["evaluate" if call != "evaluate" else "save"]
    error = (
        r"(?m)^\S+ConfigError: All ranks must make the same collective calls.*Received: call 1 of "
        rf"{re.escape(NAMES[call])} on rank 0; call 1 of {re.escape(other)} on rank 1"
    )
    assert len(re.findall(error, job.output)) == 2, job.output


def test_the_end_of_a_rank_names_the_call_in_which_the_other_one_waited(forked_jobs):
    job = forked_jobs.start({"localhost": 2}, SCRIPT, "ends", "evaluate")
    status, _ = job.wait()
    assert status != 0, job.output
    assert "This rank waited for the other ranks in call 1 of metrics.evaluate." in job.output


def test_tables_that_differ_by_name_are_listed_on_both_ranks_while_they_wait(forked_jobs):
    job = forked_jobs.start({"localhost": 2}, SCRIPT, "tables", "none")
    lists = (
        rf"{RANK.format(1)} waits for the opening of table 'c', and {RANK.format(0)} is waiting in "
        rf".*; {RANK.format(0)} builds 'a', 'b'; {RANK.format(1)} builds 'a', 'c'"
    )
    job.wait_for(lists, 2, seconds=60)
    job.kill()
