"""Compares the figures of the working tree with their kept values, for `scripts/counts`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.counts import kept
from tests.support.counts.figures import FIGURES, count
from tests.support.counts.tree import Tree

FILE = "tests/support/counts/kept.json"


def main(root: Path, arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    tree, file = Tree(root), root / FILE
    if options.list:
        sys.stdout.writelines(f"{place}\n" for place in FIGURES[options.list](tree))
        return 0
    figures, values = count(tree), kept.read(file)
    if options.keep:
        values = kept.lowered(figures, values)
        kept.write(file, values)
    lines = [_line(name, value, values.get(name)) for name, value in figures.items()]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    faults = kept.faults(figures, values)
    sys.stderr.writelines(f"scripts/counts: {fault}\n" for fault in faults)
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/counts", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--list", metavar="NAME", choices=FIGURES, help="print the places of one")
    chosen.add_argument("--keep", action="store_true", help="write the values that became lower")
    return parser


def _line(name: str, value: int, kept_value: int | None) -> str:
    return f"{value:6d}  {name}" + ("" if value == kept_value else f"  (kept: {kept_value})")


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), sys.argv[1:]))
