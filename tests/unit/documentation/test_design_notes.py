"""docs/design: each note says whether it is current and names its code; the index has all notes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.documentation import design_index

ROOT = Path(__file__).resolve().parents[3]
PATHS = sorted(design_index.FOLDER.glob("[0-9]*.md"))
# What a note names in backticks: a file of the repository, not of another project.
NAMED = re.compile(r"`((?:benchmarks|custom_ops|docs|scripts|tests|tfhybrid)/[\w./-]+)`")


def test_the_index_has_every_note() -> None:
    """python -m tests.unit.documentation.design_index writes it."""
    page = design_index.PAGE.read_text()
    assert design_index.written(page) == page


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_note_begins_with_its_number_status_and_code(path: Path) -> None:
    note = design_index.read(path)
    assert path.name.startswith(note.number)
    assert [code for code in note.code if not (ROOT / code).exists()] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_successor_of_a_note_exists(path: Path) -> None:
    successor = design_index.read(path).successor
    assert successor is None or (path.parent / successor).exists()
    assert successor != path.name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_files_that_a_note_names_exist(path: Path) -> None:
    named = NAMED.findall(path.read_text())
    assert [each for each in named if not (ROOT / each).exists()] == []


def test_a_note_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "0001-old.md"
    path.write_text(
        "# 0001: Old\n\nStatus: replaced by [0002](0002-new.md)\n\nCode: `setup.py`, `docs`\n\nText"
    )
    note = design_index.read(path)
    assert note.status == "replaced by [0002](0002-new.md)"
    assert note.successor == "0002-new.md"
    assert note.code == ["setup.py", "docs"]


@pytest.mark.parametrize(
    "text",
    [
        "# 0001: Old\n\nCode: `setup.py`\n\nText",
        "# 0001: Old\n\nStatus: current\n\nText",
        "# 0001: Old\n\nStatus: replaced by 0002\n\nCode: `setup.py`\n\nText",
        "# 0001: Old\n\nStatus: current\n\nCode: setup.py\n\nText",
    ],
)
def test_a_note_without_both_lines_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "0001-old.md"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"0001-old\.md must begin with"):
        design_index.read(path)
