"""A work tree of another commit, with its native libraries compiled, kept below build/compare."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath

from rich.console import Console

from benchmarks.support.compare.child_process import child
from benchmarks.support.launch import ROOT, tail

FOLDER = ROOT / "build" / "compare"
BUILD_INFO = Path("tfhybrid", "ops", "_build_info.json")


class ComparisonError(RuntimeError):
    """The comparison cannot be made; the message says why."""


def commit_of(name: str) -> str:
    """Returns the full name of a commit.

    Args:
        name: A commit, branch or tag, such as `HEAD~1`.

    Raises:
        ComparisonError: There is no such commit.
    """
    done = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if done.returncode:
        raise ComparisonError(
            f"Expected a commit, branch or tag of this repository. Received: {name}."
            f"{f' Git: {done.stderr.strip()}' if done.stderr else ''}"
        )
    return done.stdout.strip()


def title_of(commit: str) -> str:
    """Returns the short name, date and subject of a commit."""
    return _git("log", "-1", "--format=%h, %cs, %s", commit).stdout.strip()


def changed_files() -> list[str]:
    """Returns the files of this tree that differ from its commit, or that no commit has."""
    return [line[3:] for line in _git("status", "--porcelain").stdout.splitlines()]


def benchmarks_in(tree: Path) -> dict[str, str]:
    """Returns the module of each benchmark in a work tree, by its name."""
    return _modules(file.relative_to(tree) for file in tree.glob("benchmarks/**/__main__.py"))


def benchmarks_at(commit: str) -> dict[str, str]:
    """Returns the module of each benchmark of a commit, by its name."""
    files = _git("ls-tree", "-r", "--name-only", commit, "benchmarks").stdout.splitlines()
    return _modules(PurePath(file) for file in files)


def _modules(files: Iterable[PurePath]) -> dict[str, str]:
    folders = sorted(file.parent for file in files if file.name == "__main__.py")
    # What lies in support measures nothing itself. Earlier commits have no rooms.
    return {
        folder.name: ".".join(folder.parts) for folder in folders if "support" not in folder.parts
    }


def built_tree(commit: str, console: Console) -> Path:
    """Returns the work tree of a commit, and makes it if it is not there.

    Its native libraries are compiled for the TensorFlow of this tree. A tree whose build fails or
    is interrupted is removed.

    Args:
        commit: The full name of the commit.
        console: Console for a line before a build, which takes minutes.

    Raises:
        ComparisonError: Git or the build failed.
    """
    tree = FOLDER / commit[:12]
    if _is_built(tree):
        return tree
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = tree.with_suffix(".log")
    console.print(f"building {tree.relative_to(ROOT)}, log in {log.relative_to(ROOT)}")
    try:
        if not (tree / ".git").exists():
            # By force: the folder of an earlier tree may be gone without Git's knowledge.
            done = _git("worktree", "add", "--force", "--detach", str(tree), commit)
            if done.returncode:
                raise ComparisonError(f"git worktree add failed: {done.stderr.strip()}")
        _build(tree, log)
    except BaseException:
        _git("worktree", "remove", "--force", str(tree))
        raise
    return tree


def _build(tree: Path, log: Path) -> None:
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    command += ["--parallel", str(len(os.sched_getaffinity(0)))]
    with log.open("w") as output, child(command, tree, output) as process:
        process.wait()
    if process.returncode or not _is_built(tree):
        raise ComparisonError(
            f"{tree.name} does not compile against this environment:\n{tail(log.read_text())}"
        )
    # Or its first turn would compile what this tree has compiled long ago.
    for folder in ("tfhybrid", "benchmarks", "examples", "tests/support"):
        compileall.compile_dir(tree / folder, quiet=2)


def _is_built(tree: Path) -> bool:
    """Returns whether a build has ended there, for the TensorFlow of this tree."""
    # setup.py writes it last.
    infos = [folder / BUILD_INFO for folder in (tree, ROOT)]
    return all(info.exists() for info in infos) and len({i.read_bytes() for i in infos}) == 1


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
