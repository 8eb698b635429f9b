"""A rank dies by kill -9: the job ends soon, and the next one finds and removes what it left."""

from __future__ import annotations

import pytest


def test_killed_rank_ends_the_job(start_job):
    job = start_job(2, "victim")
    job.kill(1)
    assert job.wait(10) != 0


def test_store_of_a_job_killed_whole_is_reclaimed_by_the_next(start_job, shm_directory):
    job = start_job(2, "victim")
    job.kill(1)
    job.kill(0)
    assert job.wait(10) != 0
    assert list(shm_directory.glob("tfhybrid-*-victim"))

    following = start_job(1, "next")
    assert "Removed the store of a dead job" in following.output
    assert f"rank 0 (pid {job.pids[0]}" in following.output
    assert "It can resume from checkpoints alone" in following.output
    assert not list(shm_directory.glob("tfhybrid-*-victim"))


def test_living_job_is_left_alone_and_its_name_is_taken(start_job, shm_directory):
    job = start_job(1, "alive")
    start_job(1, "other")
    assert list(shm_directory.glob("tfhybrid-*-alive"))
    with pytest.raises(AssertionError, match=rf"alive.*is running.*pid {job.pids[0]}"):
        start_job(1, "alive")
