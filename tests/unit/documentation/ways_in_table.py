"""The table of the ways in which values enter, in docs/data.md, made from `ways.WAYS`.

python -m tests.unit.documentation.ways_in_table    # writes it
"""

from __future__ import annotations

from pathlib import Path

from tests.support.ways_in.ways import WAYS, lacking
from tests.unit.documentation.marked_part import with_part

PAGE = Path(__file__).parents[3] / "docs" / "data.md"


def table() -> str:
    """Returns the table, a way per row."""
    lines = ["| Way in | Cannot carry | A bad value |", "| --- | --- | --- |"]
    lines += [
        f"| {way.name} | {', '.join(lacking(way))} | {way.bad_rows} |" for way in WAYS.values()
    ]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Returns the page with its table made anew."""
    return with_part(page, "ways in", table())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
