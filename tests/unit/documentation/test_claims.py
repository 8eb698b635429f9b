"""Every file and test that the table of claims names exists."""

from __future__ import annotations

import re

import pytest

from tests.unit.documentation.claim_markers import ROOT, has_test

PAGE = ROOT / "docs" / "patent.md"
ROW = re.compile(r"^\| (?!Claim |---)(.+) \|$", re.MULTILINE)
# `folder/file` or `folder/file::name`, or a file of the root.
NAMED = re.compile(r"`([\w./-]+/[\w.-]+|[\w-]+\.(?:txt|py))(?:::(\w+))?`")
ROWS = ROW.findall(PAGE.read_text())


def test_every_row_says_where_it_stands():
    assert len(ROWS) > 100
    for row in ROWS:
        claim, code, _, difference = row.split(" | ")
        assert claim
        assert code.strip() or difference.strip(), claim


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE.read_text()))))
def test_what_it_names_exists(file, name):
    assert (ROOT / file).exists(), file
    assert not name or has_test(file, name), f"{file} has no {name}"
