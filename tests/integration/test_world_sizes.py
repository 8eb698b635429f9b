"""Jobs on more ranks than tests/parallel is started with, and the same job twice."""

from __future__ import annotations

import re

import pytest

from tests.integration.horovodrun import run


@pytest.mark.timeout(600)
def test_training_on_three_ranks_is_exact() -> None:
    """With TensorFlow; tests/unit/core/test_engine.py has other worlds, up to 12 ranks."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "world_size"]
    tests = [f"tests/parallel/test_{of}.py" for of in ("exactness", "bags", "forgetting")]
    output = run(3, "-m", "pytest", *options, *tests)
    assert len(re.findall(r"\d+ passed", output)) == 3


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
