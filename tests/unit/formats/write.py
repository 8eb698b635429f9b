"""Writes the golden files anew: `python -m tests.unit.formats.write NAME...`, by default all.

For a format that changes on purpose, and for nothing else: jobs that run, checkpoints, journals and
published chains have the old one, which must stay readable. See the README beside this file.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.unit.formats.formats import FORMATS, GOLDEN, files


def main(names: list[str]) -> None:
    for name in names or FORMATS:
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-test-") as directory:
            memory, folder = Path(directory, "memory"), Path(directory, "files")
            memory.mkdir()
            folder.mkdir()
            FORMATS[name].write(folder, memory)
            shutil.rmtree(GOLDEN / name, ignore_errors=True)
            for file, content in files(folder).items():
                path = GOLDEN / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1:])
