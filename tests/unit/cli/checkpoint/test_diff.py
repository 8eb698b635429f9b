from __future__ import annotations

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.unit.cli.conftest import rewrite, rows_of
from tfhybrid.checkpoint.table_file import StoredRows, read_names
from tfhybrid.cli.checkpoint.variables import Variables, matched

TABLES = ["user", "item"]


def test_a_checkpoint_equals_itself(run, run_json, newest):
    found = run_json("diff", newest, newest.parent)
    assert found["dense"]["changed"] == {}
    assert (found["tables"]["added"], found["tables"]["removed"]) == ([], [])
    for table in found["tables"]["compared"].values():
        assert set(table.values()) == {0, None}
    assert "11 equal, 0 changed" in run("diff", newest, newest).stdout


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_matched_by_key(run_json, directory, newest, table):
    """The same by dictionaries."""
    older = directory / "step-0000000001"
    a, b = (
        {key: (e, s) for key, e, s, _ in zip(*rows_of(folder, table), strict=True)}
        for folder in (older, newest)
    )
    both = a.keys() & b.keys()
    found = run_json("diff", older, newest)["tables"]["compared"][table]
    assert found["added"] == len(b.keys() - a.keys()) > 0
    assert found["removed"] == 0
    assert found["changed"] == sum((a[key][0] != b[key][0]).any() for key in both) > 0
    assert found["changed_states"] == sum((a[key][1] != b[key][1]).any() for key in both)
    largest = max(np.abs(a[key][0].astype(float) - b[key][0]).max() for key in both)
    assert found["largest_difference"] == largest
    back = run_json("diff", newest, older)["tables"]["compared"][table]
    assert (back["added"], back["removed"]) == (0, found["added"])
    assert back["changed"] == found["changed"]


def test_the_order_of_rows_does_not_matter(run_json, directory, newest):
    copy = shutil.copytree(newest, directory / "copy")
    rewrite(
        copy, "item", StoredRows(*(np.ascontiguousarray(a[::-1]) for a in rows_of(copy, "item")))
    )
    found = run_json("diff", newest, copy)["tables"]["compared"]["item"]
    assert {found[name] for name in ("added", "removed", "changed", "changed_states")} == {0}


def test_a_nan_is_a_change_without_a_size(run_json, directory, newest):
    copy = shutil.copytree(newest, directory / "copy")
    rows = rows_of(copy, "item")
    rows.embeddings[4, 1] = np.nan
    rows.embeddings[5, 2] += 2
    rewrite(copy, "item", rows)
    found = run_json("diff", newest, copy)["tables"]["compared"]["item"]
    assert found["changed"] == 2
    assert found["largest_difference"] == pytest.approx(2)
    again = run_json("diff", copy, copy)["tables"]["compared"]["item"]
    assert (again["changed"], again["largest_difference"]) == (0, 0)


def test_an_empty_table_is_compared(run_json, directory, newest):
    copy = shutil.copytree(newest, directory / "copy")
    rows = rows_of(copy, "item")
    rewrite(copy, "item", StoredRows(*(array[:0] for array in rows)))
    found = run_json("diff", newest, copy)["tables"]["compared"]["item"]
    assert (found["removed"], found["added"], found["changed"]) == (len(rows.keys), 0, 0)
    assert run_json("diff", copy, newest)["tables"]["compared"]["item"]["added"] == len(rows.keys)


def test_dense_arrays_are_compared_by_the_names_of_variables(run, run_json, directory, newest):
    older = directory / "step-0000000001"
    a, b = (load_file(folder / "dense.safetensors") for folder in (older, newest))
    names = read_names(newest / "dense.safetensors")
    found = run_json("diff", older, newest)["dense"]
    called = {name: f"{name.rpartition('/')[0]}/{names[name]}" for name in names}
    assert set(found["changed"]) == {
        called.get(name, name) for name in a if (a[name] != b[name]).any()
    }
    (number,) = (n for n, name in names.items() if n[:8] == "weights/" and name[-6:] == "kernel")
    wanted = np.abs(a[number].astype(float) - b[number]).max()
    assert found["changed"][called[number]]["largest_difference"] == wanted
    assert called[number] in run("diff", older, newest).stdout


def test_states_of_random_generators_are_counted_apart(run, directory, newest):
    copy = shutil.copytree(newest, directory / "copy")
    arrays = load_file(copy / "dense.safetensors")
    states = {name: array + 1 for name, array in arrays.items() if "/random/" in name}
    save_file(arrays | states, copy / "dense.safetensors")
    text = run("diff", newest, copy).stdout
    assert "dense arrays: 8 equal, 0 changed, 0 added, 0 removed" in text
    assert "random generators: 3 states changed, as always unless both runs have set" in text
    assert "rank/0/random" not in text


def variables(**named: tuple[str, int]) -> Variables:
    """Weights in this order: what a variable is called, and how many numbers it has."""
    numbers = [f"weights/{i:04d}" for i in range(len(named))]
    arrays = {n: np.zeros(size) for n, (_, size) in zip(numbers, named.values(), strict=True)}
    return Variables(
        arrays, {n: name for n, (name, _) in zip(numbers, named.values(), strict=True)}
    )


def test_a_layer_that_came_in_between_leaves_the_others_matched():
    a = variables(first=("low/kernel", 4), second=("top/kernel", 2))
    b = variables(first=("low/kernel", 4), new=("mid/kernel", 8), second=("top/kernel", 3))
    assert matched(a, b) == {"weights/0000": "weights/0000", "weights/0001": "weights/0002"}


def test_a_model_that_was_built_twice_is_matched_in_spite_of_its_new_names():
    a = variables(first=("dense/kernel", 4), second=("dense_1/kernel", 4))
    b = variables(first=("dense_1/kernel", 4), second=("dense_2/kernel", 4))
    assert matched(a, b) == {name: name for name in a.arrays}


def test_checkpoints_of_older_versions_are_matched_by_number():
    a = Variables(variables(first=("", 4), second=("", 2)).arrays, {})
    b = variables(first=("low/kernel", 4), second=("top/kernel", 5))
    assert matched(a, b) == {name: name for name in a.arrays}


def test_a_key_with_two_rows_is_an_error(run, directory, newest):
    rows = rows_of(newest, "item")
    rows.keys[7] = rows.keys[3]
    rewrite(newest, "item", rows)
    error = run("diff", directory / "step-0000000001", newest, status=1).stderr
    assert f"Table 'item' in {newest} has duplicate keys" in error
