"""A delta is the whole that it stands for."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.unit.cli.conftest import DIM, SEED, new_model
from tfhybrid import checkpoint
from tfhybrid.data import Position


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    """A full checkpoint and a delta of few rows; and what the keys of each table have then."""
    directory = tmp_path_factory.mktemp("deltas")
    tfhybrid.init(seed=SEED)
    model = new_model()
    manager = checkpoint.CheckpointManager(model, directory, full_every_saves=2)
    for keys in (np.arange(-40, 40), np.arange(35, 45)):
        inputs = dict.fromkeys(("user", "item"), keys[:, np.newaxis])
        model.fit(inputs, np.ones(len(keys), np.float32), batch_size=80, verbose=0)
        manager.save(Position(0, 0))
    manager.wait()
    tables = checkpoint.dense.tables_of(model)
    embeddings = {name: table.lookup(np.arange(-40, 45)) for name, table in tables.items()}
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return directory, embeddings


@pytest.fixture
def directory(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "checkpoints"))


def test_inspect_tells_the_base(run, run_json, directory):
    found = run_json("inspect", directory)
    assert (found["step"], found["base"], found["sequence"]) == (2, 1, 1)
    assert {name: table["rows"] for name, table in found["tables"].items()} == {
        "user": 85,
        "item": 85,
    }
    assert not found["tables"]["user"]["whole"]
    assert "no. 1: rows that changed since step 1" in run("inspect", directory).stdout
    assert run_json("inspect", directory, "--table", "item")["keys"] == {"min": -40, "max": 44}


@pytest.mark.parametrize("table", ["user", "item"])
def test_export_has_all_rows(run, directory, trained, tmp_path, table):
    run("export", directory, tmp_path / "rows.npz", "--table", table)
    with np.load(tmp_path / "rows.npz") as rows:
        order = np.argsort(rows["keys"])
        np.testing.assert_array_equal(rows["keys"][order], np.arange(-40, 45))
        np.testing.assert_array_equal(rows["embeddings"][order], trained[1][table])


def test_diff_counts_what_the_delta_changed(run_json, directory):
    found = run_json("diff", directory / "step-0000000001", directory)["tables"]["compared"]
    for table in found.values():
        assert (table["added"], table["removed"], table["changed"]) == (5, 0, 5)


def test_verify_wants_the_base(run, run_json, directory):
    assert run("verify", directory, "--all").stdout.count("all good") == 2
    shutil.rmtree(directory / "step-0000000001")
    (report,) = run_json("verify", directory, status=1)
    assert "needs its base" in report["problems"][0]["message"]


def test_import_makes_a_checkpoint_with_all_rows(run, run_json, directory, trained, tmp_path):
    np.savez(tmp_path / "rows.npz", keys=np.array([100]), embeddings=np.ones((1, DIM), np.float32))
    output = tmp_path / "imported"
    run("import", directory, tmp_path / "rows.npz", "--table", "item", "--output", output)
    shutil.rmtree(directory)
    assert run("verify", output).stdout.endswith("5 files, all good\n")
    found = run_json("inspect", output)
    assert (found["base"], found["sequence"]) == (None, 0)
    assert [found["tables"][name]["rows"] for name in ("user", "item")] == [85, 86]
    run("export", output, tmp_path / "user.npz", "--table", "user")
    with np.load(tmp_path / "user.npz") as rows:
        order = np.argsort(rows["keys"])
        np.testing.assert_array_equal(rows["embeddings"][order], trained[1]["user"])
