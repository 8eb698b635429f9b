"""Another commit and this tree in one benchmark, by turns: COMMIT NAME [ARGUMENTS OF NAME].

    scripts/bench compare HEAD~1 step --sides tfhybrid
    scripts/bench compare --turns 3 v0.2.0 lookup

A is the commit, built once below build/compare against this environment; B is this tree as it
lies here. The turns are A B A B ... The table has the figures in which B differs from A by more
than A's runs differ from each other; all of them are in build/compare/NAME.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.support.compare import commit_tree
from benchmarks.support.compare.child_process import child
from benchmarks.support.compare.commit_tree import FOLDER, ComparisonError
from benchmarks.support.compare.differences import (
    Difference,
    Figures,
    chance,
    differences,
    figures_of,
    spread,
)
from benchmarks.support.launch import ROOT, tail


def main() -> None:
    """Parses the command line, runs both sides by turns, and prints what moved."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("commit", help="what to compare with: a commit, branch or tag")
    parser.add_argument("name", help="the benchmark")
    parser.add_argument("--turns", type=int, default=5, help="of each side, at least 2; default 5")
    # What this parser does not know goes to the benchmark.
    arguments, options = parser.parse_known_args()
    if arguments.turns < 2:
        parser.error(f"A spread needs at least 2 turns. Received: --turns {arguments.turns}.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True)
    try:
        _compare(arguments, options, console)
    except ComparisonError as error:
        sys.exit(f"scripts/bench compare: {error}")
    except KeyboardInterrupt:
        sys.exit("scripts/bench compare: interrupted, with results as they were before.")


def _compare(arguments: argparse.Namespace, options: list[str], console: Console) -> None:
    commit = commit_tree.commit_of(arguments.commit)
    modules = {
        "A": _module(arguments.name, commit_tree.benchmarks_at(commit), f"commit {commit[:8]}"),
        "B": _module(arguments.name, commit_tree.benchmarks_in(ROOT), "this tree"),
    }
    console.print(f"A  {commit_tree.title_of(commit)}")
    console.print(f"B  {commit_tree.title_of('HEAD')}")
    if changed := commit_tree.changed_files():
        console.print(f"   with changes that are not committed: {', '.join(changed)}")
    trees = {"A": commit_tree.built_tree(commit, console), "B": ROOT}
    runs: dict[str, list[Figures]] = {"A": [], "B": []}
    for turn in range(1, arguments.turns + 1):
        for side, tree in trees.items():
            started = time.perf_counter()
            runs[side].append(run(tree, modules[side], options))
            console.print(f"turn {turn} {side} {time.perf_counter() - started:6.1f} s")
    compared = differences(runs["A"], runs["B"])
    if not compared:
        raise ComparisonError(f"no figure of {arguments.name} is in all of its results.")
    _show(arguments, compared, console)


def _module(name: str, modules: Mapping[str, str], where: str) -> str:
    if name not in modules:
        raise ComparisonError(
            f"{where} has no benchmark {name}. Expected one of: {', '.join(sorted(modules))}."
        )
    return modules[name]


def run(tree: Path, module: str, options: list[str]) -> Figures:
    """Runs a benchmark in a tree and returns its figures; the tree's results stay as they are.

    Raises:
        ComparisonError: The benchmark failed, or wrote no result.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree)}  # before the installed tfhybrid
    command = [sys.executable, "-m", module, *options]
    results = tree / "benchmarks" / "results"
    # Before it starts: a short one may have ended when this process runs again.
    before = {file: file.stat().st_mtime_ns for file in results.glob("*.json")}
    with _kept(results), child(command, tree, environment=environment) as process:
        output, _ = process.communicate()
        if process.returncode:
            raise ComparisonError(f"{module} failed in {tree}:\n{tail(output)}")
        written = {
            file.stem: json.loads(file.read_text())
            for file in sorted(results.glob("*.json"))
            if file.stat().st_mtime_ns != before.get(file)
        }
    if not written:
        raise ComparisonError(f"{module} wrote no result with these arguments: {options}.")
    return figures_of(written)


@contextlib.contextmanager
def _kept(results: Path) -> Iterator[None]:
    """Puts the files of a folder back as they were at the beginning."""
    with tempfile.TemporaryDirectory(prefix="tfhybrid-results-") as folder:
        copy = shutil.copytree(results, Path(folder, "results"))
        try:
            yield
        finally:
            for file in results.iterdir():
                if not (copy / file.name).exists():
                    file.unlink()
            shutil.copytree(copy, results, dirs_exist_ok=True)


def _show(arguments: argparse.Namespace, compared: list[Difference], console: Console) -> None:
    moved = [each for each in compared if each.moved]
    if moved:
        console.print(_table(moved))
    probability = chance(arguments.turns)
    console.print(
        f"{len(moved)} of {len(compared)} figures moved. With {arguments.turns} turns, chance "
        f"alone moves a figure with a probability of up to {probability:.2g}: about "
        f"{probability * len(compared):.1f} of these."
    )
    path = FOLDER / f"{arguments.name}.txt"
    with path.open("w") as file:
        Console(file=file, width=160).print(_table(compared))
    console.print(f"all figures: {path.relative_to(ROOT)}")


def _table(compared: list[Difference]) -> Table:
    table = Table()
    table.add_column("figure", overflow="fold")
    for heading in ("A, median", "B, median", "B / A", "spread of A", "spread of B"):
        table.add_column(heading, justify="right")
    for each in compared:
        table.add_row(
            each.name,
            *(f"{statistics.median(values):,.5g}" for values in (each.a, each.b)),
            f"{each.ratio:.3f}",
            *(f"{spread(values):.1%}" for values in (each.a, each.b)),
        )
    return table


if __name__ == "__main__":
    main()
