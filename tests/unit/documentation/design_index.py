"""The table of docs/design/README.md, made from the first lines of the design notes.

python -m tests.unit.documentation.design_index    # writes it
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from tests.unit.documentation.marked_part import with_part

FOLDER = Path(__file__).parents[3] / "docs" / "design"
PAGE = FOLDER / "README.md"
_HEAD = re.compile(
    r"# (?P<number>\d{4}): (?P<decision>.+)\n\n"
    r"Status: (?P<status>current|replaced by \[\d{4}\]\((?P<successor>\d{4}-[\w-]+\.md)\))\n\n"
    r"Code: (?P<code>`[^`]+`(?:, `[^`]+`)*)\n\n"
)


@dataclasses.dataclass(frozen=True)
class Note:
    """The first lines of a design note.

    Attributes:
        path: File of the note.
        number: Number of the note, four digits.
        decision: Title of the note.
        status: `current`, or `replaced by` and a link.
        successor: File name of the note that replaces this one, or `None`.
        code: Paths of the code that the note explains, from the root of the repository.
    """

    path: Path
    number: str
    decision: str
    status: str
    successor: str | None
    code: list[str]


def read(path: Path) -> Note:
    """Reads the first lines of a design note.

    Raises:
        ValueError: The note does not begin with a title, a `Status:` line and a `Code:` line.
    """
    head = _HEAD.match(path.read_text())
    if head is None:
        raise ValueError(
            f"{path.name} must begin with `# NNNN: title`, `Status: current` (or `Status: replaced "
            "by [NNNN](NNNN-name.md)`) and `Code:` with paths in backticks, a blank line after each"
        )
    code = re.findall(r"`([^`]+)`", head["code"])
    return Note(path, head["number"], head["decision"], head["status"], head["successor"], code)


def notes() -> list[Note]:
    """Returns all design notes, by number."""
    return [read(path) for path in sorted(FOLDER.glob("[0-9]*.md"))]


def table() -> str:
    """Returns a table with a line for each note."""
    lines = ["| Number | Decision | Status | Code |", "| --- | --- | --- | --- |"]
    for note in notes():
        code = ", ".join(f"`{path}`" for path in note.code)
        link = f"[{note.number}]({note.path.name})"
        lines.append(f"| {link} | {note.decision} | {note.status} | {code} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Returns the page with its table made anew."""
    return with_part(page, "notes", table())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
