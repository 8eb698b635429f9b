"""Pictures of pages: they agree with the rooms, and can be read on a phone and on dark pages."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.architecture.rooms import LEVELS, NATIVE_MAY_INCLUDE, PACKAGE, ROOT

FIGURES = ROOT / "docs" / "figures"
DRAWN_BY_HAND = sorted(
    each for each in FIGURES.glob("*.svg") if not each.name.startswith("benchmark-")
)
SVG = "{http://www.w3.org/2000/svg}"
WIDEST = 480  # on a phone of 360 pixels, its text of 14 is then 10.5 high
PICTURES = pytest.mark.parametrize("picture", DRAWN_BY_HAND, ids=lambda picture: picture.stem)


def rooms_in_picture(kind: str) -> list[list[str]]:
    """Returns the rooms in `map_rooms.svg`, line by line, from bottom to top.

    Args:
        kind: Class of the lines, `"rooms"` or `"folders"`.
    """
    texts = ElementTree.parse(FIGURES / "map_rooms.svg").iter(f"{SVG}text")
    lines = [text.text.split(" · ") for text in texts if kind in text.get("class", "").split()]
    return lines[::-1]


def test_the_map_has_every_room_and_every_room_exists():
    drawn = [room for line in rooms_in_picture("rooms") for room in line]
    assert sorted(drawn) == sorted(room for rooms in LEVELS for room in rooms)
    for room in drawn:
        assert (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()


def test_no_room_of_the_map_stands_below_one_that_it_may_import():
    level_of = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
    lines = [[level_of[room] for room in line] for line in rooms_in_picture("rooms")]
    for below, above in pairwise(lines):
        assert max(below) <= min(above)


def test_the_map_has_every_native_folder_above_those_that_it_may_include():
    lines = rooms_in_picture("folders")
    height_of = {folder: height for height, line in enumerate(lines) for folder in line}
    assert sorted(height_of) == sorted(NATIVE_MAY_INCLUDE)
    for folder, allowed in NATIVE_MAY_INCLUDE.items():
        assert (ROOT / "custom_ops" / folder).is_dir()
        for other in allowed & set(height_of):
            assert height_of[other] <= height_of[folder], (folder, other)


@PICTURES
def test_a_picture_can_be_read_on_a_phone_and_on_dark_pages(picture: Path):
    content = picture.read_text()
    root = ElementTree.fromstring(content)
    assert float(root.get("viewBox", "").split()[2]) <= WIDEST
    assert min(int(size) for size in re.findall(r"font: (\d+)px", content)) >= 14
    assert "prefers-color-scheme: dark" in content
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    assert len(content) < 8000


@PICTURES
def test_a_picture_keeps_its_text_within_its_edges(picture: Path):
    root = ElementTree.parse(picture).getroot()
    width = float(root.get("viewBox", "").split()[2])
    for text in root.iter(f"{SVG}text"):
        place = float(text.get("x", "0"))
        room = {"left": width - place, "right": place}
        kinds = text.get("class", "").split()
        sides = [room[kind] for kind in kinds if kind in room] or [2 * min(place, width - place)]
        assert 8 * len(text.text) <= min(sides), text.text
