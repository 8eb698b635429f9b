"""10^8 reads beside updates and growth: every row is as one update left it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NATIVE_TESTS = Path(__file__).parents[2] / "build/native/tests/native_tests"


@pytest.mark.skipif(not NATIVE_TESTS.exists(), reason="scripts/test native builds it")
def test_no_read_is_torn() -> None:
    done = subprocess.run(
        [NATIVE_TESTS, "--gtest_filter=TornRead*"],
        env={"TFHYBRID_TORN_READS": "100000000", **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "PASSED" in done.stdout
