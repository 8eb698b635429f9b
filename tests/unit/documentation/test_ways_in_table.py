"""The page says of every way in which values enter what it cannot carry."""

from __future__ import annotations

from pathlib import Path

from tests.support.ways_in.ways import KINDS, WAYS
from tests.unit.documentation import ways_in_table


def test_the_page_has_all_ways() -> None:
    """python -m tests.unit.documentation.ways_in_table writes it."""
    page = ways_in_table.PAGE.read_text()
    assert ways_in_table.written(page) == page


def test_every_kind_is_carried_by_a_way() -> None:
    assert set(KINDS) == {kind for way in WAYS.values() for kind in KINDS if kind not in way.lacks}


def test_every_way_is_tested() -> None:
    """Criteo's lines are drawn as texts, in tests/unit/data/formats/test_ways_in.py."""
    folder = Path(__file__).parents[1] / "values"
    tests = "".join(file.read_text() for file in sorted(folder.glob("test_*_ways.py")))
    assert [name for name in WAYS if f'"{name}"' not in tests] == ["`Criteo`"]
