from __future__ import annotations

import dataclasses
import datetime
import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from tensorflow import keras

import tfhybrid
from tests.unit.cli.conftest import DIM, SEED, rewrite, rows_of
from tfhybrid.checkpoint.manifest import Manifest
from tfhybrid.cli.checkpoint.summary import OPTIMIZERS
from tfhybrid.config.table_optimizers import SparseOptimizer


def test_shows_the_newest_checkpoint(run, newest):
    text = run("inspect", newest.parent).stdout
    assert str(newest) in text.replace("\n", "")
    assert "resumes at epoch 2, step 0" in text
    lines = text.splitlines()
    assert any("item" in line and "Adagrad" in line for line in lines[:-2])  # a row of the table
    # In the order of Keras, whose versions differ.
    assert set(lines[-2:]) == {
        "optimizer Adam(beta_1=0.9, beta_2=0.999, epsilon=1e-07, amsgrad=False) of user",
        "optimizer Adagrad(initial_accumulator_value=0.1, epsilon=1e-07) of item",
    }


def test_json_is_the_manifest_in_words(run_json, newest):
    found = run_json("inspect", newest.parent)
    manifest = json.loads((newest / "manifest.json").read_text())
    dense = load_file(newest / "dense.safetensors")
    assert found["folder"] == str(newest)
    assert (found["step"], found["position"]) == (3, {"epoch": 2, "step": 0})
    assert (found["ranks"], found["seed"]) == (1, SEED)
    assert found["versions"] == manifest["versions"]
    assert found["versions"]["tfhybrid"] == tfhybrid.__version__
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found["saved"])
    assert datetime.timedelta(0) <= age < datetime.timedelta(days=1)
    assert found["dense"]["arrays"] == len(dense)
    assert found["dense"]["bytes"] == sum(array.nbytes for array in dense.values())
    assert found["bytes"] == sum(file["size"] for file in manifest["files"].values())
    item = found["tables"]["item"]
    assert (item["rows"], item["dim"]) == (manifest["tables"]["item"]["rows"], DIM)
    assert item["optimizer"] == {
        "name": "Adagrad",
        "initial_accumulator_value": 0.1,
        "epsilon": 1e-7,
    }
    assert (item["state_slots"], item["version"], item["files"]) == (1, 3, 1)
    assert item["bytes"] == (newest / "item-00000.safetensors").stat().st_size
    assert found["tables"]["user"]["optimizer"]["name"] == "Adam"


@pytest.mark.parametrize("argument", ["--step=1", "the folder itself"])
def test_step_or_folder_picks_a_checkpoint(run_json, directory, argument):
    folder = directory / "step-0000000001"
    arguments = [directory, argument] if argument.startswith("--") else [folder]
    assert run_json("inspect", *arguments)["folder"] == str(folder)


def test_table_shows_keys_norms_and_first_rows(run_json, newest):
    rows = rows_of(newest, "item")
    norms = np.linalg.norm(rows.embeddings.astype(np.float64), axis=1)
    found = run_json("inspect", newest, "--table", "item")
    assert found["keys"] == {"min": rows.keys.min(), "max": rows.keys.max()}
    assert found["norms"] == pytest.approx(
        {"min": norms.min(), "mean": norms.mean(), "max": norms.max()}, rel=1e-12
    )
    assert (found["nan_rows"], found["infinite_rows"]) == (0, 0)
    assert [row["key"] for row in found["first_rows"]] == rows.keys[:5].tolist()
    assert found["first_rows"][2]["embedding"] == rows.embeddings[2].tolist()


def test_rows_that_are_not_finite_are_counted_and_left_out(run, run_json, newest):
    rows = rows_of(newest, "item")
    rows.embeddings[:3, 1] = np.nan
    rows.embeddings[3] = np.inf
    rewrite(newest, "item", rows)
    found = run_json("inspect", newest, "--table", "item")
    assert (found["nan_rows"], found["infinite_rows"]) == (3, 1)
    assert found["first_rows"][0]["embedding"][1] is None
    norms = np.linalg.norm(rows.embeddings[4:].astype(np.float64), axis=1)
    assert found["norms"]["max"] == pytest.approx(norms.max())
    assert "NaN       in 3 rows" in run("inspect", newest, "--table", "item").stdout


def test_an_empty_table_has_no_range(run, run_json, newest):
    rows = rows_of(newest, "item")
    rewrite(newest, "item", type(rows)(*(array[:0] for array in rows)))
    found = run_json("inspect", newest, "--table", "item")
    assert (found["rows"], found["keys"], found["norms"]) == (0, None, None)
    assert found["first_rows"] == []
    assert "rows      0 of dim" in run("inspect", newest, "--table", "item").stdout


def test_an_unknown_table_says_which_there_are(run, newest):
    error = run("inspect", newest, "--table", "doc", status=1).stderr
    assert "has the tables ['item', 'user']. Received: 'doc'" in error


def test_optimizers_have_the_names_that_users_know():
    classes = {c.kind: c.__name__ for c in SparseOptimizer.__subclasses__()}
    assert {kind: name for kind, (name, _) in OPTIMIZERS.items()} == classes
    for name, settings in OPTIMIZERS.values():
        own = set(vars(getattr(tfhybrid.optimizers, name)()))
        assert {"learning_rate", "weight_decay", *settings} == own


def test_what_few_tables_have_is_told_where_it_is(run_json, newest):
    sgd = tfhybrid.optimizers.SGD(0.1, weight_decay=0.5)
    optimizer = sgd.native(keras.regularizers.L2(0.25), lazy=False)
    manifest = Manifest.read(newest)
    entry = dataclasses.replace(manifest.tables["item"], optimizer=list(optimizer))
    dataclasses.replace(manifest, tables={**manifest.tables, "item": entry}).write(newest)
    found = run_json("inspect", newest)["tables"]["item"]["optimizer"]
    assert (found["name"], found["weight_decay"], found["penalty_l2"]) == ("SGD", 0.5, 0.25)
    assert found["every_row"] is True
    assert "penalty_l1" not in found


def test_rows_of_keys_are_shown_whole(run, run_json, newest):
    rows = rows_of(newest, "user")
    key = int(rows.keys[3])
    options = ("inspect", newest, "--table", "user", "--key", str(key), "--string", "never seen")
    found, other = run_json(*options)
    assert (found["key"], found["string"]) == (key, None)
    np.testing.assert_array_equal(np.float32(found["embedding"]), rows.embeddings[3])
    np.testing.assert_array_equal(np.float32(found["states"]), rows.states[3])
    wanted = int(tfhybrid.data.string_keys("never seen"))
    assert (other["key"], other["embedding"]) == (wanted, None)
    text = run(*options).stdout
    assert f"key {key}" in text
    assert "of 'never seen'" in text
    assert "no row: training reads its initial value" in text


def test_rows_of_keys_want_a_table(run, newest):
    assert "--table" in run("inspect", newest, "--key", "7", status=1).stderr
