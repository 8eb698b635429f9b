"""A manifest is believed in nothing: whatever it holds, an error names it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.checkpoint.conftest import rows, write_checkpoint
from tfhybrid.checkpoint.manifest import FileEntry, Manifest
from tfhybrid.checkpoint.stored import StoredCheckpoint, locate, steps
from tfhybrid.errors import CheckpointError

FILES = ["dense.safetensors", "item-00000.safetensors", "item-00001.safetensors"]


def raw(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture
def delta(folder: Path) -> Path:
    """A checkpoint that adds to that of `folder`."""
    return write_checkpoint(
        folder.parent, 9, [rows(3, 2)], base=StoredCheckpoint.open(folder).base(), in_all=7
    )


def refused(folder: Path, content: object) -> str:
    """Writes a manifest, which must be refused, and returns why."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "manifest.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=re.escape(str(folder))) as error:
        Manifest.read(folder)
    return str(error.value)


def put(content: dict[str, Any], path: str, value: object) -> None:
    """Sets a field by its path; `-` removes it."""
    *parents, last = path.split("/")
    for parent in parents:
        content = content[parent]
    if value == "-":
        del content[last]
    else:
        content[last] = value


def test_reads_a_position_as_it_was_written_before_it_became_an_object(folder):
    path = folder / "manifest.json"
    older = json.loads(path.read_text()) | {"position": [1, 2]}
    del older["crc32c"]
    path.write_text(json.dumps(older))
    assert Manifest.read(folder).position == {"epoch": 1, "step": 2}


def test_reads_what_it_wrote(folder):
    manifest = Manifest.read(folder)
    assert manifest.position == {"epoch": 1, "step": 2}
    assert (manifest.step, manifest.ranks, manifest.seed) == (7, 2, 5)
    assert list(manifest.files) == FILES
    assert manifest.tables["item"].files == FILES[1:]
    assert manifest.tables["item"].row_bytes == 8 + 4 * 3 * 3
    content = (folder / "manifest.json").read_bytes()
    manifest.write(folder)
    assert (folder / "manifest.json").read_bytes() == content


WRONG_TYPES = [None, True, -1, 1.5, "1", [], {}, 2**70]
NUMBERS = ["step", "ranks", "seed", "files/dense.safetensors/size"]
NUMBERS += ["files/dense.safetensors/crc32c"]
NUMBERS += [f"tables/item/{name}" for name in ("dim", "rows", "version", "state_slots", "digest")]


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", WRONG_TYPES, ids=repr)
def test_numbers_are_whole_and_in_range(folder, field, value):
    content = raw(folder)
    put(content, field, value)
    assert "manifest.json cannot be read" in refused(folder, content)


@pytest.mark.parametrize("field", ["step", "crc32c", "sequence"])
@pytest.mark.parametrize("value", WRONG_TYPES, ids=repr)
def test_numbers_of_a_base_are_whole_and_in_range(delta, field, value):
    content = raw(delta)
    put(content, f"base/{field}", value)
    assert "manifest.json cannot be read" in refused(delta, content)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("base", value) for value in (7, [], {}, {"step": 1}, "-")],
        ("base/step", 9),
        ("base/more", 1),
        ("base", None),  # a table that is not whole has none to add to
    ],
    ids=str,
)
def test_a_delta_has_a_base_before_it(delta, field, value):
    content = raw(delta)
    put(content, field, value)
    assert "manifest.json cannot be read" in refused(delta, content)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("optimizer", value) for value in ("-", None, 3, "\ud800")],
        *[("tables/item/whole", value) for value in ("-", None, 1, "true", False)],
        *[("tables/item/expected_rows", value) for value in ("-", -1, 1.5, "9", True)],
        *[(field, "-") for field in [*NUMBERS, "format", "position", "versions", "tables"]],
        *[(field, "-") for field in ("tables/item/files", "files/dense.safetensors", "files")],
        *[("format", value) for value in (0, 2, "1", None, [], "x" * 10_000)],
        *[
            ("position", value)
            for value in ([1], [1, 2, 3], [1, -2], ["1", 2], "12", {"a": "\ud800"}, None)
        ],
        *[("features", value) for value in (None, [], "x", {"a": "\ud800"})],
        *[("versions", value) for value in (None, [], {"tfhybrid": 1}, {"a": "\ud800"})],
        *[("tables", value) for value in (None, [], [[]], {"item": None}, {"item": []}, "item")],
        *[("files", value) for value in (None, [], {"a": 1}, {}, "files")],
        ("tables/item/dim", 0),
        ("tables/item/dim", 65537),
        ("tables/item/rows", 100),
        ("tables/item/rows", 2**62),
        ("tables/item/state_slots", 200),
        *[("tables/item/initializer", value) for value in (None, "uniform", [None], [1e999, 0, 0])],
        *[("tables/item/optimizer", value) for value in (None, 3, ["3"], [float("nan")], [True])],
        *[("tables/item/files", value) for value in (None, "dense.safetensors", [1], [[]], {})],
        ("tables/item/files", [FILES[1], FILES[1]]),
        ("tables/item/files", [*FILES[1:], "other.safetensors"]),
        ("tables/item/files", FILES),
        ("tables/item/files", []),
        ("tables/item/more", 1),
        ("more", 1),
        ("files/dense.safetensors/more", 1),
        ("tables/", "item"),
    ],
    ids=str,
)
def test_fields_are_of_their_types_and_fit_together(folder, field, value):
    content = raw(folder)
    put(content, field, value)
    message = refused(folder, content)
    assert len(message) < 1000


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 129, "\ud800"], ids=ascii)
def test_names_of_tables_are_names(folder, name):
    content = raw(folder)
    content["tables"][name] = {**content["tables"]["item"], "files": [], "rows": 0}
    assert "a table's name" in refused(folder, content)


@pytest.mark.parametrize(
    "name",
    [
        "../item-00000.safetensors",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        "manifest.json",
        "a\0b",
        "a\nb",
        "a b",
        "\ud800",
        "é",
        "\x1b[2J",
        "x" * 256,
    ],
    ids=ascii,
)
def test_names_of_files_lie_in_the_folder(folder, name):
    content = raw(folder)
    content["files"][name] = content["files"].pop(FILES[1])
    content["tables"]["item"]["files"][0] = name
    assert "none outside" in refused(folder, content)


def test_a_file_belongs_to_one_table(folder):
    content = raw(folder)
    content["tables"]["other"] = content["tables"]["item"]
    assert "alone" in refused(folder, content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"17",
        b"\xff",
        b"[" * 200_000,
        b'{"format": ' + b"9" * 5000 + b"}",
        b'{"format": 1, "format": 1}',
        b'{"format": NaN}',
    ],
    ids=lambda content: ascii(content[:20]),
)
def test_what_is_no_manifest_is_refused(folder, content):
    refused(folder, content)


def test_repeated_names_are_refused(folder):
    text = (folder / "manifest.json").read_bytes()
    assert "occur once" in refused(folder, text.replace(b'"step": 7', b'"step": 7, "step": 8'))


def test_every_shorter_manifest_is_refused(folder):
    text = (folder / "manifest.json").read_bytes()
    for size in range(len(text)):
        refused(folder, text[:size])


def test_every_flipped_bit_is_refused_or_says_the_same(folder):
    text = (folder / "manifest.json").read_bytes()
    wanted = Manifest.read(folder)
    for bit in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << (bit % 8)
        (folder / "manifest.json").write_bytes(damaged)
        with contextlib.suppress(CheckpointError):
            assert Manifest.read(folder) == wanted, bit


def test_a_huge_manifest_is_not_read(folder):
    os.truncate(folder / "manifest.json", 2**40)  # a hole: nothing on the disk
    with pytest.raises(CheckpointError, match="at most"):
        Manifest.read(folder)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: None])
def test_what_is_no_file_is_refused(folder, make):
    (folder / "manifest.json").unlink()
    make(folder / "manifest.json")
    with pytest.raises(CheckpointError, match=r"there is no plain file manifest\.json"):
        Manifest.read(folder)


PATHS = [*NUMBERS, "format", "position", "versions", "tables", "files", "tables/item"]
PATHS += ["files/dense.safetensors", "tables/item/files", "tables/item/optimizer"]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
names = st.sampled_from([*FILES, "item", "size", "dim", "..", "/"]) | st.text(max_size=4)
values = st.recursive(
    leaves | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=st.dictionaries(st.sampled_from(PATHS), values, min_size=1, max_size=3))
def test_any_change_is_read_or_refused(tmp_path_factory, folder, changes):
    content = raw(folder)
    for path, value in changes.items():
        with contextlib.suppress(KeyError, TypeError):  # a parent was replaced before
            put(content, path, value)
    other = tmp_path_factory.mktemp("changed")
    (other / "manifest.json").write_text(json.dumps(content))
    with contextlib.suppress(CheckpointError):
        manifest = Manifest.read(other)
        assert manifest.step >= 0
        assert all(Path(name).name == name for name in manifest.files)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_refused(tmp_path, content):
    refused(tmp_path, content)


def test_files_are_described_in_pieces(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"123456789")
    assert FileEntry.of(path) == FileEntry(9, 0xE3069283)  # the check value of CRC-32C
    path.write_bytes(bytes(9_000_000))
    pieces: list[int] = []
    assert FileEntry.of(path, pieces.append).size == sum(pieces) == 9_000_000
    assert len(pieces) > 1
    path.write_bytes(b"")
    assert FileEntry.of(path) == FileEntry(0, 0)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 10)])
def test_damaged_files_are_named(folder, damage: Callable[[Path], None]):
    manifest = Manifest.read(folder)
    StoredCheckpoint.open(folder).check()
    damage(folder / FILES[2])
    manifest.check_file(folder, FILES[1])
    for check in (
        lambda: manifest.check_file(folder, FILES[2]),
        StoredCheckpoint.open(folder).check,
    ):
        with pytest.raises(CheckpointError, match=re.escape(FILES[2])):
            check()


def test_a_checkpoint_is_found_by_step_or_by_its_folder(folder):
    newer = folder.with_name("step-0000000012")
    newer.mkdir()
    assert steps(folder.parent) == [7]  # what has no manifest is no checkpoint
    (newer / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    assert steps(folder.parent) == [7, 12]
    assert locate(folder.parent) == newer
    assert locate(folder.parent, 7) == locate(folder) == folder
    with pytest.raises(CheckpointError, match=r"steps \[7, 12\]. Received: step=8"):
        locate(folder.parent, 8)
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        locate(folder, 7)
