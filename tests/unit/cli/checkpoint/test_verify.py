from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.unit.cli.conftest import rewrite, rows_of
from tfhybrid.checkpoint.manifest import FileEntry
from tfhybrid.checkpoint.table_file import StoredRows, arrays_of


def problems(run_json, folder) -> list[dict[str, str]]:
    (report,) = run_json("verify", folder, status=1)
    assert report["folder"] == str(folder)
    return report["problems"]


def test_what_save_wrote_is_good(run, run_json, directory):
    assert run("verify", directory).stdout.endswith("step-0000000003: 4 files, all good\n")
    assert [report["problems"] for report in run_json("verify", directory, "--all")] == [[], []]
    assert run("verify", directory, "--all").stdout.count("all good") == 2


@pytest.mark.parametrize(
    "name", ["dense.safetensors", "user-00000.safetensors", "item-00000.safetensors"]
)
def test_says_which_file_is_damaged(run, run_json, newest, name):
    content = bytearray((newest / name).read_bytes())
    content[-1] ^= 0x40
    (newest / name).write_bytes(content)
    (problem,) = problems(run_json, newest)
    assert problem["where"] == name
    assert f"{newest / name} is damaged" in problem["message"]
    result = run("verify", newest, status=1)
    assert f"{newest / name} is damaged" in result.stderr
    assert result.stdout == ""


def test_says_which_files_are_missing_or_of_another_size(run_json, newest):
    (newest / "user-00000.safetensors").unlink()
    with (newest / "dense.safetensors").open("ab") as file:
        file.write(b"\0")
    where = {problem["where"]: problem["message"] for problem in problems(run_json, newest)}
    assert set(where) == {"user-00000.safetensors", "dense.safetensors"}
    assert "cannot be read" in where["user-00000.safetensors"]
    assert (
        f"Received: {(newest / 'dense.safetensors').stat().st_size} bytes"
        in where["dense.safetensors"]
    )


def test_a_pipe_in_place_of_a_file_is_not_waited_for(run_json, newest):
    (newest / "user-00000.safetensors").unlink()
    os.mkfifo(newest / "user-00000.safetensors")
    (problem,) = problems(run_json, newest)
    assert problem["where"] == "user-00000.safetensors"


def test_all_goes_on_after_a_damaged_checkpoint(run, directory):
    (directory / "step-0000000001" / "manifest.json").write_text("{")
    result = run("verify", directory, "--all", status=1)
    assert "step-0000000001/manifest.json cannot be read" in result.stderr
    assert "step-0000000003: 4 files, all good" in result.stdout


def test_all_and_step_exclude_each_other(run, directory):
    assert "--all" in run("verify", directory, "--all", "--step", 1, status=1).stderr


def test_a_key_with_two_rows_is_found_behind_good_checksums(run_json, newest):
    rows = rows_of(newest, "item")
    rows.keys[7] = rows.keys[3]
    rewrite(newest, "item", rows)
    (problem,) = problems(run_json, newest)
    assert problem["where"] == "item"
    assert f"has duplicate keys among {len(rows.keys)}: [{rows.keys[3]}]" in problem["message"]


def test_other_values_are_found_behind_good_checksums(run_json, newest):
    rows = rows_of(newest, "item")
    rows.states[7] += 1
    rewrite(newest, "item", rows, keep_digest=True)
    (problem,) = problems(run_json, newest)
    assert "Table 'item'" in problem["message"]
    assert "digest" in problem["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"keys": np.float64},
        {"embeddings": np.float16},
        {"states": lambda states: states[:, 0]},
        {"embeddings": lambda embeddings: np.ascontiguousarray(embeddings[:, 1:])},
    ],
    ids=["keys", "embeddings", "states", "dim"],
)
def test_blocks_of_another_shape_are_found_behind_good_checksums(run_json, newest, change):
    rows = rows_of(newest, "user")
    (name, function), *_ = change.items()
    other = rows._replace(**{name: np.ascontiguousarray(function(getattr(rows, name)))})
    write_as_they_are(newest, "user", other)
    (problem,) = problems(run_json, newest)
    assert f"{newest / 'user-00000.safetensors'} must have the arrays" in problem["message"]


def test_fewer_rows_than_declared_are_found_behind_good_checksums(run_json, newest):
    rows = rows_of(newest, "user")
    write_as_they_are(newest, "user", StoredRows(*(array[:-1] for array in rows)))
    (problem,) = problems(run_json, newest)
    assert (
        f"must have {len(rows.keys)} rows. Received: {len(rows.keys) - 1}" in (problem["message"])
    )


def test_a_renamed_checkpoint_is_of_another_step(run_json, newest):
    renamed = newest.with_name("step-0000000009")
    shutil.move(newest, renamed)
    (problem,) = problems(run_json, renamed)
    assert "is of another step: 3" in problem["message"]


def write_as_they_are(folder: Path, table: str, rows: StoredRows) -> None:
    """Writes arrays that the manifest does not describe, with a size and checksum that fit."""
    path = folder / f"{table}-00000.safetensors"
    save_file(arrays_of(rows), path, {"padding": " " * 4000})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][path.name] = vars(FileEntry.of(path))
    del manifest["crc32c"]  # which older ones lack
    (folder / "manifest.json").write_text(json.dumps(manifest))
