"""A script with `Checkpoint(resume=True)`, killed at random steps, ends as if it never was."""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.horovodrun import finished
from tests.support.jobs.forked_job import ForkedJobs
from tfhybrid import checkpoint
from tfhybrid._keras import IS_KERAS_3

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "tests" / "integration" / "jobs"
KILLS = int(os.environ.get("TFHYBRID_RESUME_KILLS", "3"))
SAVE_FREQ = 7

pytestmark = [
    pytest.mark.timeout(300 + 60 * KILLS),
    pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 cannot begin fit at an epoch of a callback"),
]


def run(
    forked_jobs: ForkedJobs,
    ranks: int,
    shm: Path,
    *arguments: object,
    memory: bool = False,
    job: str = "resumed.py",
) -> tuple[bool, str]:
    """Runs a job; returns whether all ranks came to its end, and their output."""
    environment = {"TFHYBRID_SHM_DIR": str(shm)}
    if memory:
        environment["TFHYBRID_TEST_MEMORY"] = "1"
    command = (str(JOBS / job), *map(str, arguments))
    started = forked_jobs.start({"localhost": ranks}, *command, env=environment)
    return not any(started.wait()), started.output


@pytest.mark.parametrize(
    ("ranks", "memory"), [(1, False), (2, False), (2, True)], ids=["one", "two", "memory"]
)
def test_killed_at_random_steps(forked_jobs, ranks, memory, tmp_path, shm_directory):
    whole, result, folder = tmp_path / "whole.json", tmp_path / "killed.json", tmp_path / "saved"
    ended, output = run(forked_jobs, ranks, shm_directory, tmp_path / "undisturbed", whole, 32)
    assert ended, output
    draw = random.Random(ranks)
    done = 0
    for _ in range(KILLS):
        at = done + draw.randint(1, 3 * SAVE_FREQ if KILLS < 10 else SAVE_FREQ + 1)
        ended, output = run(
            forked_jobs, ranks, shm_directory, folder, result, 32, at, memory=memory
        )
        assert not ended, output
        assert not result.exists()
        assert done == 0 or ("Resumed from memory" if memory else "Restored") in output
        # From a checkpoint, the steps since then are trained again.
        done = at if memory else max(checkpoint.steps(folder), default=0)
    ended, output = run(forked_jobs, ranks, shm_directory, folder, result, 32, memory=memory)
    assert ended, output
    assert json.loads(result.read_text()) == json.loads(whole.read_text())


def test_another_number_of_ranks_and_another_batch_go_on_at_the_next_sample(
    tmp_path, shm_directory
):
    """Under horovodrun itself."""
    result, folder = tmp_path / "end.json", tmp_path / "saved"
    script, environment = str(JOBS / "resumed.py"), {"TFHYBRID_SHM_DIR": str(shm_directory)}
    killed = finished(2, script, str(folder), str(result), "32", "24", env=environment)
    assert killed.returncode != 0, killed.stdout
    done = max(checkpoint.steps(folder))  # in the first epoch, of 1,000 samples
    resumed = finished(1, script, str(folder), str(result), "50", env=environment)
    assert resumed.returncode == 0, resumed.stdout
    assert "batch_size was 16, and is 50, ranks was 2, and is 1" in resumed.stdout
    left = 1000 - 32 * done
    assert json.loads(result.read_text())["step"] == done + math.ceil(left / 50) + 2 * 20


@pytest.mark.parametrize(("ranks", "then"), [(3, 3), (1, 2)])
def test_every_row_is_trained_or_told_although_the_job_is_killed(
    forked_jobs: ForkedJobs, ranks: int, then: int, tmp_path: Path, shm_directory: Path
) -> None:
    """The rows in the files are those that were trained, on all ranks, and those that were told."""
    bad, told, first = {*range(0, 130, 11)}, set(), 0
    for number, rows in enumerate((60, 1, 69)):
        users = ["x" if row in bad else str(row) for row in range(first, first + rows)]
        lines = "".join(f"{row % 2},{user}\n" for row, user in enumerate(users))
        (tmp_path / f"{number}.csv").write_text(f"label,user\n{lines}")
        first += rows
    ended, output = run(forked_jobs, ranks, shm_directory, tmp_path, 16, job="skipping.py")
    assert not ended, output
    ended, output = run(forked_jobs, then, shm_directory, tmp_path, job="skipping.py")
    assert ended, output
    updates = json.loads((tmp_path / "updates.json").read_text())
    assert updates == {str(row): 2.0 for row in range(130) if row not in bad}  # once in each epoch
    for line in (tmp_path / "bad.jsonl").read_text().splitlines():
        row = json.loads(line)
        told.add({"0.csv": 0, "1.csv": 60, "2.csv": 61}[Path(row["path"]).name] + row["row"])
    assert told == bad
    begun_within = []
    for epoch in range(2):
        counts = Counter()
        for path in tmp_path.glob("account-*.jsonl"):
            accounts = [json.loads(line) for line in path.read_text().splitlines()]
            counts.update([each for each in accounts if each["epoch"] == epoch][-1])
        assert counts["rows"] == counts["before"] + counts["trained"] + counts["bad"] == 130
        begun_within.append(counts["before"] > 0)
    assert any(begun_within)
