"""A job that is told to stop saves first; one that loses a rank ends in a few lines."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.support.jobs.running_job import RunningJob
from tfhybrid import checkpoint


@pytest.fixture
def start_fitting(start_job, tmp_path):
    return lambda ranks, name: start_job(ranks, name, "fitting.py", str(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_rank_saves_on_all(start_fitting, tmp_path, number) -> None:
    job: RunningJob = start_fitting(2, "stopped")
    os.kill(job.pids[1], number)
    assert job.wait(60) != 0
    assert len(checkpoint.steps(tmp_path)) == 1
    (step,) = re.findall(r"step (\d+) is saved in", job.output)
    assert checkpoint.steps(tmp_path) == [int(step)]
    assert "error" not in job.output.split("running rank=1")[1].split("Process")[0].lower()

    following: RunningJob = start_fitting(2, "following")
    assert f"resumes at 0 {step}" in following.output


def test_horovodrun_that_is_interrupted_saves(start_fitting, tmp_path) -> None:
    job: RunningJob = start_fitting(2, "interrupted")
    job.interrupt()
    assert job.wait(60) != 0
    assert len(checkpoint.steps(tmp_path)) == 1


def test_the_death_of_a_rank_is_told_in_a_few_lines(start_fitting) -> None:
    job: RunningJob = start_fitting(2, "dying")
    job.kill(1)
    assert job.wait(60) != 0
    said = [line for line in job.output.splitlines() if line.startswith("[0]<stderr>")]
    after = said[next(i for i, line in enumerate(said) if "has died" in line) :]
    assert len(after) <= 8, job.output
    assert "Detected at node" not in job.output
    assert re.search(r"at .*fitting\.py:\d+, ", job.output)
