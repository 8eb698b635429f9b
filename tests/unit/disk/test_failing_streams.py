"""The files of a stream on a disk that fails or is full, and in a process without descriptors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.disk.watched_disk import HERE, Fault, preloaded

PLACES = {
    *("journal", "terms", "start_of_a_model", "base", "publication", "bases", "queue"),
    *("bad_rows", "set_aside"),
}
# Work that needs no descriptor: it writes into an open file.
WITHOUT = {Fault.NO_DESCRIPTORS: {"terms", "bad_rows"}}


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_each_call_of_a_stream_may_fail(fault: Fault, tmp_path: Path, shm_directory: Path) -> None:
    """stream_job.py lets each call of each place fail in turn, and checks what there is then."""
    environment = preloaded(tmp_path)
    root = tmp_path / "places"
    root.mkdir()
    command = [sys.executable, HERE / "stream_job.py", fault.name, root, shm_directory]
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stderr[-3000:]
    counts = json.loads((root / "result.json").read_text())
    assert counts.keys() == PLACES
    failed = {place for place, count in counts.items() if sum(count.values())}
    assert failed == PLACES - WITHOUT.get(fault, set())
