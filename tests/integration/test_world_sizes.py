"""Jobs on more ranks than tests/parallel is started with, and the same job twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(ranks: int, *command: str, env: dict[str, str] | None = None) -> str:
    """Runs Python under horovodrun; returns what all ranks wrote."""
    horovodrun = str(Path(sys.executable).with_name("horovodrun"))
    result = subprocess.run(
        [horovodrun, "--gloo", "-np", str(ranks), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.timeout(600)
def test_training_on_three_ranks_is_exact() -> None:
    """With TensorFlow; tests/unit/core/test_engine.py has other worlds, up to 12 ranks."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "world_size"]
    tests = [f"tests/parallel/test_{of}.py" for of in ("exactness", "bags", "forgetting")]
    output = run(3, "-m", "pytest", *options, *tests)
    assert len(re.findall(r"\d+ passed", output)) == 3


@pytest.mark.timeout(300)
def test_two_runs_of_a_job_give_the_same_bits(tmp_path) -> None:
    """Whatever Horovod is told, which is heeded; two ranks also whichever way they add up."""
    timeline = tmp_path / "timeline.json"
    settings = {
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CYCLE_TIME": "5",
        "HOROVOD_TIMELINE": str(timeline),
    }
    job = "tests/integration/jobs/digests.py"
    outputs = run(2, job, "hierarchical"), run(2, job), run(2, job, env=settings)
    assert len({re.search(r"digests (.*)", output)[1] for output in outputs}) == 1
    assert "tfhybrid.dense." in timeline.read_text()
