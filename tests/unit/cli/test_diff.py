from __future__ import annotations

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.unit.cli.conftest import rewrite, rows_of
from tfhybrid.checkpoint.table_file import Rows

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
    rewrite(copy, "item", Rows(*(np.ascontiguousarray(a[::-1]) for a in rows_of(copy, "item"))))
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
    rewrite(copy, "item", Rows(*(array[:0] for array in rows)))
    found = run_json("diff", newest, copy)["tables"]["compared"]["item"]
    assert (found["removed"], found["added"], found["changed"]) == (len(rows.keys), 0, 0)
    assert run_json("diff", copy, newest)["tables"]["compared"]["item"]["added"] == len(rows.keys)


def test_dense_arrays_are_compared_by_name(run, run_json, directory, newest):
    older = directory / "step-0000000001"
    a, b = (load_file(folder / "dense.safetensors") for folder in (older, newest))
    found = run_json("diff", older, newest)["dense"]
    assert set(found["changed"]) == {name for name in a if (a[name] != b[name]).any()}
    kernel = found["changed"]["weights/0000"]
    wanted = np.abs(a["weights/0000"].astype(float) - b["weights/0000"]).max()
    assert kernel["largest_difference"] == wanted
    assert "weights/0000" in run("diff", older, newest).stdout


def test_a_key_with_two_rows_is_an_error(run, directory, newest):
    rows = rows_of(newest, "item")
    rows.keys[7] = rows.keys[3]
    rewrite(newest, "item", rows)
    error = run("diff", directory / "step-0000000001", newest, status=1).stderr
    assert f"Table 'item' in {newest} has keys twice" in error
