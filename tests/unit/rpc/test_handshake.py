"""Handshakes: what is none is refused with an error that a server survives."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfhybrid.errors import StoreError
from tfhybrid.rpc.handshake import Handshake, Purpose

GOOD = Handshake(Purpose.UPDATES, "rank 3", "session", 1, 2, 3)


def test_a_handshake_comes_back() -> None:
    assert Handshake.heard(GOOD.text()) == GOOD
    assert Handshake.purpose_of(GOOD.text()) == Purpose.UPDATES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "[" * 1000,
        '{"protocol": 3}',
        GOOD.text().replace('"host": 1', '"host": Infinity'),
        GOOD.text().replace('"host": 1', '"host": null'),
        GOOD.text().replace('"updates"', '"uploads"'),
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"handshake must be JSON|one version of tfhybrid"):
        Handshake.heard(text)


@pytest.mark.parametrize("name", ["", "rank 3\nINFO all is well", "a\x1b[2J", "n" * 256])
def test_names_that_a_line_of_a_log_cannot_show_are_refused(name: str) -> None:
    with pytest.raises(StoreError, match="1 to 255 printable characters"):
        Handshake.heard(dataclasses.replace(GOOD, name=name).text())


@given(st.text(max_size=30) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(repr))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(StoreError):
        Handshake.heard(text)
    assert Handshake.purpose_of(text) is None
