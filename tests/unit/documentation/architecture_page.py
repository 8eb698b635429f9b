"""The tables of docs/architecture.md, made of the rooms and of who may import whom.

python -m tests.unit.documentation.architecture_page    # writes them
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.architecture.rooms import LEVELS, NATIVE_MAY_INCLUDE, PACKAGE, ROOT
from tests.unit.documentation.marked_part import with_part

PAGE = ROOT / "docs" / "architecture.md"


def native_table() -> str:
    """Returns the folders of `custom_ops`, each with those that it may include."""
    lines = ["| Folder | May include |", "| --- | --- |"]
    for folder, allowed in NATIVE_MAY_INCLUDE.items():
        short = ", ".join(f"`{each.removeprefix('core/')}`" for each in sorted(allowed))
        lines.append(f"| `{folder}` | {short or 'none'} |")
    return "\n".join(lines) + "\n"


def room_table() -> str:
    """Returns the rooms of the package from bottom to top, each with its first line."""
    lines = ["| Level | Room | Contents |", "| ---: | --- | --- |"]
    for level, rooms in enumerate(LEVELS, 1):
        for room in rooms:
            lines.append(f"| {level} | `{room}` | {_first_line(room)} |")
    return "\n".join(lines) + "\n"


def _first_line(room: str) -> str:
    folder = PACKAGE / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


TABLES = {"native folders": native_table, "rooms": room_table}


def written(page: str) -> str:
    """Returns the page with its tables made anew, each between two comments of its name."""
    for name, table in TABLES.items():
        page = with_part(page, name, table())
    return page


def main(page: Path = PAGE) -> None:
    """Writes the page."""
    page.write_text(written(page.read_text()))


if __name__ == "__main__":
    main()
