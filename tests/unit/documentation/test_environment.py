"""The environment variables: one module reads them, and the page has all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.documentation import environment_table
from tfhybrid.settings import VARIABLES

PACKAGE = Path(__file__).resolve().parents[3] / "tfhybrid"
DECLARED = {each.name for each in VARIABLES}
IN_C = {"TFHYBRID_TABLE_NAME_BYTES"}  # no variable, but a constant of the core


def test_the_page_has_all_variables() -> None:
    """python -m tests.unit.documentation.environment_table writes it."""
    page = environment_table.PAGE.read_text()
    assert environment_table.written(page) == page


def test_links_are_of_declared_variables() -> None:
    assert set(environment_table.LINKS) <= DECLARED


@pytest.mark.parametrize(
    "file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: file.relative_to(PACKAGE).as_posix()
)
def test_only_settings_read_the_environment(file: Path) -> None:
    text = file.read_text()
    if file != PACKAGE / "settings.py":
        assert not re.search(r"\bos\.environ\b|\bgetenv\b|\bimport .*\benviron\b", text)
    named = set(re.findall(r"\bTFHYBRID_[A-Z_]*[A-Z]\b", text))
    assert named <= DECLARED | IN_C


def test_no_variable_is_declared_twice() -> None:
    assert len(DECLARED) == len(VARIABLES)
