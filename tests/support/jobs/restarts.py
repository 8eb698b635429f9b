"""Runs of one job, killed and started again."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

from tests.support.jobs.forked_job import ForkedJob, ForkedJobs

SCRIPT = "tests/integration/jobs/restarted.py"


class Restarts:
    """Runs of one job, one after the other.

    Args:
        jobs: What starts them.
        slots: Ranks of each host.
        directory: Of the checkpoints.
        shm_directory: Of the store; where hosts have their own, none.
        steps: Of the whole training.
    """

    def __init__(
        self,
        jobs: ForkedJobs,
        slots: dict[str, int],
        directory: Path,
        shm_directory: Path | None = None,
        steps: int = 200,
    ) -> None:
        self.steps = steps
        self.jobs = jobs
        self.slots = slots
        self.directory = directory
        self.env = {} if shm_directory is None else {"TFHYBRID_SHM_DIR": str(shm_directory)}

    def start(self, slots: dict[str, int] | None = None, **options: float) -> ForkedJob:
        """Starts a run, on the ranks of all others if no slots are given."""
        return self.jobs.start(
            slots or self.slots,
            *(SCRIPT, str(self.directory), str(self.steps), json.dumps(options)),
            env=self.env,
        )

    def finish(self, **options: float) -> tuple[str, list[str]]:
        """Runs to the end; returns the output and the digests of all ranks."""
        output = self.start(**options).succeed()
        return output, re.findall(r"digests (rank=.*)", output)

    def kill_in_training(self, seconds: float, **options) -> str:
        """Kills all ranks so many seconds after they have begun to train."""
        job = self.start(seconds=0.02, **options)
        said = "saved rank" if "save" in options else "trained rank"
        job.wait_for(said, sum(self.slots.values()))
        threading.Event().wait(seconds)
        job.kill()
        return job.output


def begun_at(output: str) -> int:
    """Returns the step at which all ranks went on."""
    (step,) = set(re.findall(r"resumes rank=\d+ step=(\d+)", output))
    return int(step)
