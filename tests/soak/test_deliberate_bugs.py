"""Each patch below bugs/ puts one bug into the tree, which a suite that it names must notice.

The folders of bugs/ are the rooms of the code that a patch edits.

A patch that no longer applies or compiles fails its test too: it is renewed with the code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = (
    ".git",
    ".venv",
    "build",
    "dist",
    "demo-output",
    "online-output",
    "*.egg-info",
    "__pycache__",
    "libtfhybrid_core.so",  # built in the copy
)
BUGS = Path(__file__).parent / "bugs"
PATCHES = sorted(BUGS.rglob("*.patch"), key=lambda path: path.name)


class Copy:
    """A copy of the tree, whose core and native tests are built."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Times of change are kept, and so is what was built: only what differs is built anew.
        shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
        self.build()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(self.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{' '.join(command)}:\n{done.stdout[-4000:]}"
        return done

    def build(self) -> None:
        # Python tests load the core from there.
        output = f"-DTFHYBRID_OUTPUT_DIR={self.path / 'tfhybrid/ops'}"
        self.run("cmake", "-S", "custom_ops", "-B", "build", "-DTFHYBRID_BUILD_TESTS=ON", output)
        self.run("cmake", "--build", "build", "--parallel", str(os.cpu_count()))

    def passes(self, suites: Sequence[str]) -> bool:
        """Runs `["native"]`, or the Python tests in the given files and folders."""
        if suites == ["native"]:
            jobs = str(os.cpu_count())
            ctest = ("ctest", "--test-dir", "build", "--stop-on-failure", "--parallel", jobs)
            return self.run(*ctest, check=False).returncode == 0
        status = self.run(sys.executable, "-m", "pytest", "-x", *suites, check=False).returncode
        assert status in (0, 1), f"pytest {' '.join(suites)} ended with {status}"
        return status == 0


@pytest.fixture(scope="module")
def copy() -> Copy:
    return Copy(ROOT / "build/bugs")


@pytest.fixture
def broken(copy: Copy, patch: Path) -> Iterator[Copy]:
    copy.run("patch", "-p1", "--fuzz=0", "-i", str(patch))
    try:
        yield copy
    finally:
        copy.run("patch", "-p1", "-R", "-i", str(patch))


def test_there_are_twenty() -> None:
    assert len(PATCHES) >= 20


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_bug_is_noticed(broken: Copy, patch: Path) -> None:
    suites = re.search(r"^Noticed by: (.+)$", patch.read_text(), re.MULTILINE)[1].split()
    broken.build()  # a Python bug may follow a native one, which must leave the core
    assert not broken.passes(suites)
