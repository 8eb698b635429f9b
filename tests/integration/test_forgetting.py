"""A job whose tables forget is killed and goes on from memory: a test for each combination."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest

from tests.support.jobs.forked_job import forked_jobs
from tests.support.reference.forgetting_job import CELLS

SCRIPT = "tests/integration/jobs/forgetting.py"
STEPS, DIE = 20, 11
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[dict[int, dict], dict[int, dict]]:
    """What the ranks tell of a job that was killed and resumed, and of one that was not."""
    folder = tmp_path_factory.mktemp("ranks")
    # A directory of its own: any job that starts on this host removes the store of a dead one.
    shm = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-test-")
    with shm, forked_jobs(folder) as jobs:
        env = {"TFHYBRID_SHM_DIR": shm.name}

        def run(directory: Path, die: str = "") -> dict[int, dict]:
            arguments = (SCRIPT, str(directory), str(STEPS), *die.split())
            job = jobs.start({"localhost": 2}, *arguments, env=env)
            if die:
                job.wait()
                return {}
            told = [json.loads(text) for text in re.findall(r"told (.*)", job.succeed())]
            return {of_rank["rank"]: of_rank for of_rank in told}

        run(folder / "killed", str(DIE))
        return run(folder / "killed"), run(folder / "whole")


@pytest.mark.parametrize("cell", CELLS)
def test_resumed_from_memory(cell, runs) -> None:
    resumed, whole = runs
    for rank in (0, 1):
        # Whether the leader came to the last update before it was killed is left to chance.
        assert resumed[rank]["begin"] in (DIE, DIE + 1)
        assert whole[rank]["begin"] == 1
        assert resumed[rank]["digests"][cell] == whole[rank]["digests"][cell]
