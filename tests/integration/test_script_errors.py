"""An error in a script under horovodrun: one traceback, and nothing of another rank is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.horovodrun import finished

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "tests/integration/jobs/raising.py"
LINE = (
    rf"^\[1\]<stderr>:Rank 1 at \S*{SCRIPT}:\d+, raise ValueError.*: ValueError: wrong on purpose"
)


@pytest.mark.parametrize(("failing", "traceback_of"), [(["0", "1"], 0), (["1"], 1)])
def test_one_rank_prints_its_traceback(failing: list[str], traceback_of: int) -> None:
    run = finished(2, SCRIPT, *failing)
    assert run.returncode != 0
    assert len(re.findall(LINE, run.stdout, re.M)) == 1, run.stdout
    tracebacks = re.findall(r"^\[(\d)\]<stderr>:Traceback", run.stdout, re.M)
    assert tracebacks == [str(traceback_of)], run.stdout
