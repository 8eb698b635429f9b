"""Makes an environment that has TensorFlow and what it needs, and nothing else.

The packages are those of this environment, by links: what runs there sees neither tfhybrid nor
Horovod, and TensorFlow is installed once.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def make(folder: Path) -> Path:
    """Returns the interpreter of a new environment in a folder, in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    show_packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.check_output([python, "-I", "-c", show_packages], text=True)
    ours, theirs = Path(sysconfig.get_path("purelib")), Path(answer.strip())
    for name in {name for package in _with_needs("tensorflow") for name in _files_of(package)}:
        (theirs / name).symlink_to(ours / name)
    return python


def _with_needs(name: str) -> list[Distribution]:
    """Returns a package and all that it needs, itself or through others."""
    found: dict[str, Distribution] = {}
    wanted = [name]
    while wanted:
        package = distribution(wanted.pop())
        if package.name in found:
            continue
        found[package.name] = package
        needs = map(Requirement, package.requires or [])
        wanted += [need.name for need in needs if need.marker is None or need.marker.evaluate()]
    return [*found.values()]


def _files_of(package: Distribution) -> set[str]:
    """Returns the names of a package's files and folders in site-packages."""
    return {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}
