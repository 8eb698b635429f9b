"""The table of faults: each names its place, what comes of it, and a test that exists."""

from __future__ import annotations

import re

import pytest

from tests.unit.documentation.claim_markers import ROOT, has_test

PAGE = (ROOT / "docs" / "concurrency.md").read_text()
SECTION = PAGE.partition("## Faults, and what comes of them\n")[2].partition("\n## ")[0]
ROWS = [line[2:-2].split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][2:]
FAULTS = {
    *("full disk", "bad disk: one call fails", "power cut", "no descriptors", "`SIGSTOP`"),
    *("cut connection", "flipped bit", "`kill -9`"),
}


def test_each_kind_of_fault_is_there() -> None:
    assert {row[0] for row in ROWS} == FAULTS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]}")
def test_the_test_of_each_fault_exists(row: list[str]) -> None:
    _, place, outcome, test = row
    assert place
    assert outcome
    match = re.fullmatch(r"`(tests/[\w./]+)::(\w+)`", test)
    assert match is not None, test
    assert has_test(*match.groups()), test
