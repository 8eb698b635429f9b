"""A file of rows is believed in nothing: whatever it holds, an error names it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from safetensors.numpy import save_file

import tfhybrid
from tests.unit.checkpoint.conftest import BLOCKS, DIM, SLOTS, rows
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import (
    StoredRows,
    arrays_of,
    digest,
    file_name,
    no_history,
    parts,
    read_arrays,
    sorted_keys,
)
from tfhybrid.errors import CheckpointError

GOOD = {
    "keys": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
    "embeddings": {"dtype": "F32", "shape": [2, 3], "data_offsets": [16, 40]},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "item-00000.safetensors"


def write(path: Path, header: object, data: int = 40, *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + bytes(data))
    return path


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        read_arrays(path)
    assert str(path) in str(error.value)
    return str(error.value)


def read_or_refused(path: Path) -> dict[str, np.ndarray]:
    with contextlib.suppress(CheckpointError):
        return read_arrays(path)
    refused(path)
    return {}


def changed(name: str, **fields: object) -> dict[str, object]:
    return {**GOOD, name: {**GOOD[name], **fields}}


def test_reads_what_safetensors_writes(path):
    arrays = {
        "a": np.arange(7, dtype=np.int8),
        "b": np.array(3.5),
        "c": np.zeros((0, 2, 5), np.float32),
        "d": np.array([[True], [False]]),
        "e": np.arange(3, dtype=np.uint64) + 2**63,
    }
    save_file(arrays, path, {"optimizer": "Adam"})
    found = read_arrays(path)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert not found[name].flags.writeable


def test_reads_an_empty_header(path):
    assert read_arrays(write(path, {}, 0)) == {}


def test_reads_the_blocks_of_a_table(folder):
    blocks = StoredCheckpoint.open(folder).rows("item")
    assert [len(block.keys) for block in blocks] == list(BLOCKS)
    for number, block in enumerate(blocks):
        for found, wanted in zip(block, rows(10 * number, BLOCKS[number]), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_table_that_is_not_there_is_an_error(folder):
    with pytest.raises(CheckpointError, match=r"has the tables \['item'\]. Received: 'user'"):
        StoredCheckpoint.open(folder).rows("user")


def test_every_shorter_and_longer_file_is_refused(folder, path):
    content = (folder / "item-00001.safetensors").read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        refused(path)
    path.write_bytes(content + b"\0")
    refused(path)


def test_every_flipped_bit_of_the_header_is_refused(folder):
    stored = StoredCheckpoint.open(folder)
    path = folder / "item-00000.safetensors"
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for bit in range(8 * header):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="item-00000"):
            stored.rows("item")


@pytest.mark.parametrize(
    "header",
    [
        changed("keys", dtype="I65"),
        changed("keys", dtype=["I64"]),
        changed("keys", dtype=None),
        changed("keys", shape=[3]),
        changed("keys", shape=[2.0]),
        changed("keys", shape=[True, 2]),
        changed("keys", shape=["2"]),
        changed("keys", shape={"2": 2}),
        changed("keys", shape=2),
        changed("keys", shape=[-2]),
        changed("keys", shape=[-1, -2]),
        changed("keys", shape=[2] + [1] * 40),
        changed("keys", shape=[2**62]),
        changed("keys", shape=[2**63]),
        changed("keys", shape=[2**32, 2**32]),
        changed("keys", shape=[2**32, 2**32, 2]),
        changed("keys", shape=[10**4000]),
        changed("keys", shape=[2**62, 2**62, 0], data_offsets=[0, 0]),
        changed("keys", data_offsets=[0]),
        changed("keys", data_offsets=[0, 16, 32]),
        changed("keys", data_offsets=[16, 0]),
        changed("keys", data_offsets=[-16, 0]),
        changed("keys", data_offsets=[0, 16.0]),
        changed("keys", data_offsets=[0, 2**64]),
        changed("keys", data_offsets=[8, 24]),
        changed("embeddings", data_offsets=[8, 32]),
        changed("embeddings", data_offsets=[0, 24]),
        changed("embeddings", data_offsets=[24, 48]),
        changed("embeddings", shape=[2**40, 3], data_offsets=[16, 16 + 12 * 2**40]),
        changed("keys", more=1),
        {**GOOD, "keys": {"dtype": "I64", "shape": [2]}},
        {**GOOD, "keys": [1, 2]},
        {**GOOD, "keys": None},
        {"keys": GOOD["keys"]},
        [GOOD],
        None,
        17,
        b"",
        b"{",
        b"\xff\xfe",
        b"{}{}",
        b'{"keys": ' + b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a": NaN}',
        json.dumps(GOOD).encode()[:-1] + b', "keys": ' + json.dumps(GOOD["keys"]).encode() + b"}",
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_refused(path, header):
    refused(write(path, header))


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**31, 2**63, 2**64 - 1, 2**64 - 8])
def test_a_header_of_another_length_is_refused(path, length):
    refused(write(path, GOOD, length=length))


def test_a_huge_header_is_not_read(path):
    with path.open("wb") as file:  # a hole: nothing on the disk
        file.write((2**40).to_bytes(8, "little"))
        file.truncate(2**41)
    assert "header" in refused(path)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: None])
def test_what_is_no_file_of_rows_is_refused(path, make):
    make(path)
    refused(path)


numbers = st.integers(-1, 50) | st.integers() | st.floats() | st.none() | st.booleans()
leaves = numbers | st.text(max_size=5) | st.sampled_from(["I64", "F32", "BOOL"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
arrays = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["I64", "F32", "U8", "BF16"]) | values,
        "shape": st.lists(st.integers(0, 8), max_size=3) | values,
        "data_offsets": st.lists(st.integers(0, 48), min_size=2, max_size=2).map(sorted) | values,
    }
)
headers = st.dictionaries(st.sampled_from(["keys", "embeddings", "states"]), arrays | values)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(header=headers, data=st.integers(0, 48))
def test_any_header_is_read_or_refused(path, header, data):
    """What is read lies in the file, whatever was declared."""
    found = read_or_refused(write(path, header, data))
    assert sum(array.nbytes for array in found.values()) in (0, data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(path, content):
    path.write_bytes(content)
    read_or_refused(path)


def test_blocks_that_are_not_what_the_manifest_says_are_refused(folder):
    stored = StoredCheckpoint.open(folder)
    path = folder / "item-00001.safetensors"
    good = arrays_of(rows(0, 3))
    others = [
        {**good, "keys": good["keys"].astype(np.uint64)},
        {**good, "keys": good["keys"][:2]},
        {**good, "keys": good["keys"][:, np.newaxis]},
        {**good, "keys": np.array(1)},
        {**good, "embeddings": good["embeddings"].astype(np.float64)},
        {**good, "embeddings": np.zeros((3, DIM + 1), np.float32)},
        {**good, "states": np.zeros((3, SLOTS * DIM), np.float32)},
        {**good, "states": np.zeros((3, SLOTS + 1, DIM), np.float32)},
        {**good, "more": np.zeros(1)},
        {name: array for name, array in good.items() if name != "states"},
        {},
    ]
    for arrays in others:
        save_file(arrays, path)
        with pytest.raises(CheckpointError, match=r"item-00001\.safetensors must have the arrays"):
            stored.rows("item")
    save_file(arrays_of(rows(0, 2)), path)
    with pytest.raises(CheckpointError, match=r"must have 7 rows\. Received: 6"):
        stored.rows("item")


def test_keys_are_sorted_with_their_places():
    blocks = [StoredRows(np.array(keys), *[np.empty(0)] * 3) for keys in ([5, -3], [0, 2**62])]
    keys, places = sorted_keys(blocks, "It")
    assert keys.tolist() == [-3, 0, 5, 2**62]
    assert places.tolist() == [1, 2, 0, 3]
    assert [len(array) for array in sorted_keys([], "It")] == [0, 0]
    with pytest.raises(CheckpointError, match=r"It has duplicate keys among 4: \[5\]"):
        sorted_keys([blocks[0], blocks[0]._replace(keys=np.array([5, 7]))], "It")


def test_parts_are_the_block():
    block = rows(0, 7)
    cut = list(parts(block, 3))
    assert [len(part.keys) for part in cut] == [3, 3, 1]
    for joined, whole in zip(zip(*cut, strict=True), block, strict=True):
        np.testing.assert_array_equal(np.concatenate(joined), whole)


def _mix(z: np.ndarray) -> np.ndarray:
    """Mix64 of `custom_ops/core/util/hash.h`, modulo 2^64 as NumPy's arrays calculate."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def reference_digest(block: StoredRows) -> int:
    hashes = _mix(block.keys.astype(np.uint64) + np.uint64(1))
    states = block.states.reshape(len(block.keys), -1)
    history = np.ascontiguousarray(block.history).view(np.uint32)
    history = history.reshape(len(block.keys), -1)
    columns = [*block.embeddings.view(np.uint32).T, *states.view(np.uint32).T, *history.T]
    for column in columns:
        hashes = _mix(hashes ^ column) + np.uint64(0x9E3779B97F4A7C15)
    return int(hashes.sum(dtype=np.uint64))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_digest_equals_the_core_s(job, optimizer):
    optimizer = tfhybrid.optimizers.get(optimizer)
    table = tfhybrid.store.Table("item", tfhybrid.TableConfig(DIM))
    table.set_optimizer(optimizer.native(), optimizer.state_shape(table.dim))
    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(-(2**63), 2**63 - 1, 40_000))
    block = StoredRows(
        np.append(keys, [-(2**63), 2**63 - 1, 0, -1]),
        rng.standard_normal((len(keys) + 4, DIM), np.float32),
        rng.standard_normal((len(keys) + 4, optimizer.slots, DIM), np.float32),
        no_history(len(keys) + 4),
    )
    block.embeddings[3] = [np.nan, -0.0, np.inf]
    assert digest(StoredRows(*(array[:0] for array in block))) == table.digest() == 0
    table.writer.write_rows(tfhybrid.store.RowBlock(*block[:3]))
    assert digest(block) == table.digest() == reference_digest(block)
    assert sum(map(digest, parts(block, 999))) % 2**64 == table.digest()


def test_files_of_tables_have_names_without_paths():
    assert file_name("item", 3) == "item-00003.safetensors"
    assert file_name("../a/b\0", 0) == "..%2Fa%2Fb%00-00000.safetensors"
