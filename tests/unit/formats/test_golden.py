"""Every format that reaches a disk or another process is what an earlier commit wrote.

The bytes are in `golden/NAME`. `python -m tests.unit.formats.write NAME` writes them anew, when a
format changes on purpose; the README beside this file says what else that takes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.formats import FORMATS, GOLDEN, files


@pytest.mark.parametrize("name", FORMATS)
def test_writes_the_same_bytes(name: str, tmp_path: Path, shm_directory: Path):
    FORMATS[name].write(tmp_path, shm_directory)
    written, golden = files(tmp_path), files(GOLDEN / name)
    assert list(written) == list(golden)
    for file, content in golden.items():
        assert written[file] == content, f"golden/{name}/{file}"


@pytest.mark.parametrize("name", FORMATS)
def test_reads_what_an_earlier_version_wrote(name: str, shm_directory: Path):
    assert FORMATS[name].read(GOLDEN / name, shm_directory) == FORMATS[name].expected


def test_every_golden_file_is_compared():
    assert {path.name for path in GOLDEN.iterdir()} == set(FORMATS)
