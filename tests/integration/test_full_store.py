"""A store directory too small for the next chunk: an error that says so, and a table as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.conftest import JOBS


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_full_store_is_an_error_and_leaves_the_table_as_it_was(tmp_path):
    script = (
        f"mount -t tmpfs -o size=64m tmpfs {tmp_path} && "
        f"TFHYBRID_SHM_DIR={tmp_path} exec {sys.executable} {JOBS / 'filler.py'}"
    )
    run = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    assert "table 'item'" in report["message"]
    assert "wanted" in report["message"]
    assert "bytes are left" in report["message"]
    assert report["steps"] > 1
    assert report["same"]
    assert report["rows"] == report["steps"] * 4096
    assert report["version"] == report["steps"]
    assert report["finite"]
