"""What is exported can be read by others, and imported again."""

from __future__ import annotations

import json
import os
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tensorflow import keras

import tfhybrid
from tests.unit.cli.conftest import DIM, SEED, new_model, rewrite, rows_of
from tfhybrid import checkpoint
from tfhybrid.checkpoint.manifest import Manifest
from tfhybrid.cli.checkpoint import table_export, table_import
from tfhybrid.errors import DataError

NEW_KEY = 2**63 - 1


@pytest.fixture
def vectors(tmp_path):
    """A file of rows for `item`: one of its keys, and one that no table has."""
    path = tmp_path / "vectors.npz"

    def write(key: int, **arrays: np.ndarray):
        embeddings = np.arange(2 * DIM, dtype=np.float32).reshape(2, DIM)
        columns = {"keys": np.array([NEW_KEY, key]), "embeddings": embeddings, **arrays}
        np.savez(path, **columns)
        return path

    return write


def test_npz_holds_all_rows(run, newest, tmp_path):
    rows = rows_of(newest, "item")
    path = tmp_path / "item.npz"
    assert run("export", newest, path, "--table", "item").stdout.endswith(
        f"{len(rows.keys)} rows of table item\n"
    )
    with np.load(path) as file:
        assert sorted(file) == ["embeddings", "keys"]
        np.testing.assert_array_equal(file["keys"], rows.keys)
        np.testing.assert_array_equal(file["embeddings"], rows.embeddings)
        assert (file["keys"].dtype, file["embeddings"].dtype) == (np.int64, np.float32)
    run("export", newest, path, "--table", "user", "--states")
    with np.load(path) as file:
        np.testing.assert_array_equal(file["states"], rows_of(newest, "user").states)
    assert [entry.name for entry in tmp_path.iterdir() if "item" in entry.name] == ["item.npz"]


def test_parquet_holds_all_rows(run, newest, tmp_path, monkeypatch):
    monkeypatch.setattr(table_export, "_PART_ROWS", 7)
    rows = rows_of(newest, "user")
    path = tmp_path / "user.parquet"
    run("export", newest, path, "--table", "user", "--states")
    found = pyarrow.parquet.read_table(path)
    assert found.schema.types == [
        pyarrow.int64(),
        pyarrow.list_(pyarrow.float32(), DIM),
        pyarrow.list_(pyarrow.float32(), 2 * DIM),
    ]
    assert found.column_names == ["key", "embedding", "state"]
    np.testing.assert_array_equal(found["key"].to_numpy(), rows.keys)
    np.testing.assert_array_equal(np.stack(found["embedding"].to_numpy()), rows.embeddings)
    states = np.stack(found["state"].to_numpy()).reshape(rows.states.shape)
    np.testing.assert_array_equal(states, rows.states)
    run("export", newest, path, "--table", "user")
    assert pyarrow.parquet.read_table(path).column_names == ["key", "embedding"]


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_an_exported_file_loads_into_a_table(run, newest, tmp_path, job, suffix):
    path = tmp_path / f"item.{suffix}"
    run("export", newest, path, "--table", "item")
    source = {"npz": checkpoint.NumpyRows, "parquet": checkpoint.ParquetRows}[suffix]
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(DIM), name="item")
    layer.build((None, 1))
    layer.table.load(source(path))
    rows = rows_of(newest, "item")
    np.testing.assert_array_equal(layer.table.lookup(rows.keys), rows.embeddings)


@pytest.mark.parametrize("table", ["user", "item"])
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_what_was_exported_with_states_is_imported_as_it_was(
    run, run_json, newest, tmp_path, suffix, table
):
    path, output = tmp_path / f"rows.{suffix}", tmp_path / "imported"
    run("export", newest, path, "--table", table, "--states")
    run("import", newest, path, "--table", table, "--output", output, "--replace")
    found = run_json("diff", newest, output)["tables"]["compared"][table]
    assert {found[name] for name in ("added", "removed", "changed", "changed_states")} == {0}


@pytest.mark.parametrize("command", [["export"], ["import", "--output", "out"]])
def test_unknown_tables_are_refused(run, newest, vectors, command):
    name, *options = command
    error = run(name, newest, vectors(1), "--table", "doc", *options, status=1).stderr
    assert "has the tables ['item', 'user']. Received: 'doc'" in error


def test_a_table_without_state_has_none_to_export(run, newest, tmp_path):
    rows = rows_of(newest, "item")
    content = json.loads((newest / "manifest.json").read_text())
    content["tables"]["item"] |= {"optimizer": [1, 0.0, 0.0, 0.0, 0.0], "state_slots": 0}
    del content["crc32c"]  # which older ones lack
    (newest / "manifest.json").write_text(json.dumps(content))
    rewrite(newest, "item", rows._replace(states=np.empty((len(rows.keys), 0, DIM), np.float32)))
    path = tmp_path / "item.npz"
    error = run("export", newest, path, "--table", "item", "--states", status=1).stderr
    assert "an optimizer without state. Received: --states" in error
    assert not path.exists()
    run("verify", newest)
    run("export", newest, path, "--table", "item")
    run("import", newest, path, "--table", "item", "--output", tmp_path / "out")
    run("verify", tmp_path / "out")


@pytest.mark.parametrize("command", [["export"], ["import", "--output", "out"]])
def test_other_suffixes_are_refused(run, newest, tmp_path, command):
    name, *options = command
    error = run(name, newest, tmp_path / "item.csv", "--table", "item", *options, status=1).stderr
    assert "FILE.npz or FILE.parquet" in error
    assert "Received: " in error


def test_the_copy_is_named_after_its_step_whatever_the_folder_is_called(
    run, newest, tmp_path, vectors
):
    renamed = newest.rename(newest.with_name("best"))
    run("import", renamed, vectors(1), "--table", "item", "--output", tmp_path / "imported")
    assert checkpoint.steps(tmp_path / "imported") == [3]


@pytest.mark.parametrize("states", [True, False], ids=["states_of_the_file", "fresh_states"])
@pytest.mark.parametrize("table", ["user", "item"])
def test_an_imported_checkpoint_is_restored(run, newest, tmp_path, vectors, table, states):
    before = rows_of(newest, table)
    slots = before.states.shape[1]
    given = np.full((2, slots, DIM), 0.25, np.float32)
    path = vectors(before.keys[4], **({"states": given} if states else {}))
    out = tmp_path / "out"
    run("import", newest, path, "--table", table, "--output", out)
    assert checkpoint.steps(out) == [3]
    run("verify", out)

    tfhybrid.init(seed=SEED)
    try:
        model = new_model()
        assert checkpoint.restore(model, out) == (2, 0)
        restored = checkpoint.dense.tables_of(model)[table]
        (block,) = restored.blocks(states=True)
        with np.load(path) as file:
            np.testing.assert_array_equal(restored.lookup(file["keys"]), file["embeddings"])
    finally:
        tfhybrid.shutdown()
        keras.backend.clear_session()
    assert block.keys.tolist() == [*before.keys, NEW_KEY]
    others = np.delete(np.arange(len(before.keys)), 4)
    np.testing.assert_array_equal(block.embeddings[others], before.embeddings[others])
    np.testing.assert_array_equal(block.states[others], before.states[others])
    fresh = {"user": 0, "item": np.float32(0.1)}[table]
    assert set(block.states[[4, -1]].ravel()) == {0.25 if states else fresh}


def test_fresh_states_are_those_of_new_rows(run, newest, tmp_path, vectors, job):
    """As the core starts them."""
    for name, optimizer in [("user", tfhybrid.optimizers.Adam()), ("item", "adagrad")]:
        entry = Manifest.read(newest).tables[name]
        optimizer = tfhybrid.optimizers.get(optimizer)
        table = tfhybrid.store.Table(name, tfhybrid.TableConfig(DIM))
        table.set_optimizer(optimizer.native(), optimizer.state_shape(table.dim))
        table.writer.write_rows(
            tfhybrid.store.RowBlock(np.array([1]), np.zeros((1, DIM), np.float32), None)
        )
        (block,) = table.blocks(states=True)
        np.testing.assert_array_equal(table_import._fresh_state(entry), block.states[0])


def test_replace_drops_the_other_rows(run, newest, tmp_path, vectors):
    path = vectors(5)
    out = tmp_path / "out"
    run("import", newest, path, "--table", "item", "--output", out, "--replace")
    rows = rows_of(out / "step-0000000003", "item")
    assert rows.keys.tolist() == [5, NEW_KEY]
    run("verify", out)


def test_many_rows_are_written_as_many_blocks(run, run_json, newest, tmp_path, monkeypatch):
    monkeypatch.setattr(table_import, "_BLOCK_BYTES", 1000)
    path, out = tmp_path / "vectors.npz", tmp_path / "out"
    keys = np.random.default_rng(0).permutation(500)
    embeddings = np.random.default_rng(1).random((500, DIM), np.float32)
    np.savez(path, keys=keys, embeddings=embeddings)
    run("import", newest, path, "--table", "item", "--output", out)
    assert len(Manifest.read(out / "step-0000000003").tables["item"].files) > 10
    run("verify", out)
    run("export", out, tmp_path / "again.npz", "--table", "item")
    with np.load(tmp_path / "again.npz") as file:
        found = dict(zip(file["keys"].tolist(), file["embeddings"], strict=True))
    assert all((found[key] == row).all() for key, row in zip(keys, embeddings, strict=True))
    old = set(rows_of(newest, "item").keys.tolist())
    difference = run_json("diff", newest, out)["tables"]["compared"]["item"]
    assert difference["added"] == len(set(keys.tolist()) - old)
    assert difference["changed"] == len(set(keys.tolist()) & old) > 0


def test_no_checkpoint_is_changed(run, directory, newest, tmp_path, vectors):
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    path = vectors(1)
    result = run("import", directory, path, "--table", "item", "--output", directory, status=1)
    assert f"{newest} exists" in result.stderr
    run("import", directory, path, "--table", "item", "--output", tmp_path / "out")
    assert {p: p.read_bytes() for p in directory.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"keys": np.array([1, 1])}, "duplicate keys"),
        ({"keys": np.array([1.5, 2])}, "a whole number of int64"),
        ({"keys": np.array([[1, 2]])}, "Received"),
        ({"embeddings": np.full((2, DIM), np.nan, np.float32)}, "Received: nan at index 0"),
        ({"embeddings": np.zeros((2, DIM + 1), np.float32)}, "Received"),
        ({"states": np.zeros((2, 7, DIM), np.float32)}, "Received"),
    ],
    ids=["twice", "floats", "two_axes", "nan", "dim", "states"],
)
def test_rows_that_do_not_fit_leave_nothing_behind(run, newest, tmp_path, vectors, arrays, message):
    path, out = vectors(1, **arrays), tmp_path / "out"
    result = run("import", newest, path, "--table", "item", "--output", out, status=1)
    assert message in result.stderr
    assert str(path) in result.stderr
    assert not out.exists()


def test_damage_is_not_copied(run, newest, tmp_path, vectors):
    path, out = vectors(1), tmp_path / "out"
    for name in ("user-00000.safetensors", "item-00000.safetensors"):
        good = (newest / name).read_bytes()
        (newest / name).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        result = run("import", newest, path, "--table", "item", "--output", out, status=1)
        assert f"{name} is damaged" in result.stderr
        assert not out.exists() or list(out.iterdir()) == []
        (newest / name).write_bytes(good)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04", b"\x93NUMPY\x01\x00v\x00{"])
def test_a_file_that_is_no_archive_is_an_error(run, newest, tmp_path, content):
    path = tmp_path / "vectors.npz"
    path.write_bytes(content)
    options = ["--table", "item", "--output", tmp_path / "out"]
    assert str(path) in run("import", newest, path, *options, status=1).stderr


def test_an_array_that_declares_too_much_is_an_error(run, newest, tmp_path, vectors):
    path = vectors(1)
    header = {"descr": "<f4", "fortran_order": False, "shape": (2**56, DIM)}
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("keys", "embeddings"):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array_header_1_0(member, header)
    options = ["--table", "item", "--output", tmp_path / "out"]
    assert str(path) in run("import", newest, path, *options, status=1).stderr


def test_records_are_what_record_file_reads(run, newest, tmp_path):
    rows = rows_of(newest, "item")
    path = tmp_path / "item.bin"
    said = run("export", newest, path, "--table", "item", "--format", "records").stdout
    record = table_export.record_of(DIM)
    assert str(record.descr) in said.replace("\n", "")
    found = np.fromfile(path, record)
    np.testing.assert_array_equal(found["key"], rows.keys)
    np.testing.assert_array_equal(found["embedding"], rows.embeddings)
    tfhybrid.init()
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(DIM), name="item")
    layer.build((None, 1))
    optimizer = tfhybrid.optimizers.SGD(0.1)
    layer.table.set_optimizer(optimizer.native(), optimizer.state_shape(DIM))
    assert layer.table.load(tfhybrid.checkpoint.RecordFile(path, record)) == len(rows.keys)
    np.testing.assert_array_equal(layer.table.lookup(rows.keys), rows.embeddings)
    tfhybrid.shutdown()


@pytest.mark.parametrize(
    ("file", "options", "wanted"),
    [
        ("item.bin", (), "--format npz | parquet | records"),
        ("item.bin", ("--format", "records", "--states"), "Records have only keys and embeddings"),
    ],
)
def test_other_files_are_refused(run, newest, tmp_path, file, options, wanted):
    failed = run("export", newest, tmp_path / file, "--table", "item", *options, status=1)
    assert wanted in " ".join(failed.stderr.split())


def test_no_memory_is_taken_for_what_does_not_fit(tmp_path):
    """A few bytes may declare, or unpack to, more than a machine has."""
    npz, parquet, pipe = tmp_path / "v.npz", tmp_path / "v.parquet", tmp_path / "pipe.npz"
    with zipfile.ZipFile(npz, "w") as archive:
        for name, shape in (("keys", "(3,)"), ("embeddings", f"(3, {2**40})")):
            header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
            content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
            archive.writestr(f"{name}.npy", content)
    with pytest.raises(DataError, match=rf"Received: int64 \[3\], int64 \[3, {2**40}\]"):
        list(checkpoint.NumpyRows(npz).blocks(DIM, (0, DIM)))
    lists = pa.array([np.zeros(10_000)] * 3)
    pyarrow.parquet.write_table(pa.table({"key": [1, 2, 3], "embedding": lists}), parquet)
    reason = "column 'embedding': expected at most 4 values in a row. Received: 30000 values in 3"
    with pytest.raises(DataError, match=reason):
        list(checkpoint.ParquetRows(parquet).blocks(4, (1, 4)))
    os.mkfifo(pipe)
    for source in (checkpoint.NumpyRows(pipe), checkpoint.ParquetRows(pipe)):
        with pytest.raises(DataError, match="must be a file"):
            list(source.blocks(DIM, (0, DIM)))
