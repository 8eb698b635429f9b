"""The kept values of the figures: none may grow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Figures = Mapping[str, int]


def read(file: Path) -> dict[str, int]:
    """Returns the kept values; none if there is no file."""
    return json.loads(file.read_text()) if file.exists() else {}


def write(file: Path, kept: Figures) -> None:
    """Writes the kept values, one a line."""
    file.write_text(json.dumps(kept, indent=2) + "\n")


def lowered(figures: Figures, kept: Figures) -> dict[str, int]:
    """Returns the smaller of each figure and its kept value. A new figure is kept as it is."""
    return {name: min(value, kept.get(name, value)) for name, value in figures.items()}


def faults(figures: Figures, kept: Figures) -> list[str]:
    """Returns a sentence for each figure that grew or that has no kept value, or the reverse."""
    grown = [
        f"{name} is {value}, above its kept value {kept[name]}: see scripts/counts --list {name}"
        for name, value in figures.items()
        if value > kept.get(name, value)
    ]
    unmatched = [
        f"{name} is {'kept but not counted' if name in kept else 'counted but not kept'}: "
        "run scripts/counts --keep"
        for name in sorted(figures.keys() ^ kept.keys())
    ]
    return grown + unmatched
