"""A room that reads what others write checks the values.

A room reads if one of its modules calls a function of `READERS`, by its last two names. It checks
if one of its modules imports a `check` of `tfhybrid.values`. That shows that a check is there, and
not that each value passes it: the tests beside this one show that. JSON is not among the readers,
because most of it is settings and messages of tfhybrid itself.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.architecture.rooms import PACKAGE, package_files, room_of

READERS = {
    *("np.load", "np.memmap", "np.fromfile", "np.loadtxt", "np.genfromtxt"),
    *("csv.read_csv", "csv.open_csv", "parquet.ParquetFile", "parquet.read_table"),
    *("ipc.open_stream", "ipc.open_file", "Table.from_pandas", "dataset.dataset"),
    *("io.parse_example", "io.parse_single_example", "io.decode_csv", "io.decode_raw"),
    *("data.TFRecordDataset", "data.TextLineDataset", "train.load_checkpoint"),
    *("pd.read_csv", "pd.read_parquet", "pd.read_json"),
}

# Modules that read only what tfhybrid wrote itself, and why nobody else's values enter there.
OWN_FILES = {
    "export/streamed.py": "variables of the export that is being written",
    "export/variable_files.py": "variables of the export that is being written",
}

# Modules whose callers hand them values, in memory or in a message.
TAKE_VALUES = [
    "checkpoint/sources.py",
    "data_nodes/splitting.py",
    "serving/served_inputs.py",
    "serving/served_rows.py",
    "store/row_check.py",
]


def reads(file: Path) -> set[str]:
    """Returns the readers that a module calls."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names.add(".".join(ast.unparse(node.func).split(".")[-2:]))
    return names & READERS


def checks(file: Path) -> bool:
    """Returns whether a module imports a check of values."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module in ("tfhybrid.values", "tfhybrid.values.checking")
        and any(each.name.startswith("check") for each in node.names)
        for node in ast.walk(ast.parse(file.read_text()))
    )


def names_of(files: set[Path]) -> set[str]:
    return {file.relative_to(PACKAGE).as_posix() for file in files}


def test_rooms_that_read_check_values() -> None:
    files = set(package_files())
    checking = {room_of(file) for file in files if checks(file)}
    reading = {file for file in files if reads(file)}
    assert {"data/formats/parquet.py", "data/formats/text.py", "checkpoint/sources.py"} <= names_of(
        reading
    )
    unchecked = names_of({file for file in reading if room_of(file) not in checking})
    assert unchecked - OWN_FILES.keys() == set()
    assert names_of(reading) >= OWN_FILES.keys()


@pytest.mark.parametrize("name", TAKE_VALUES)
def test_modules_that_take_values_check_them(name: str) -> None:
    assert checks(PACKAGE / name)


def test_a_reader_without_a_check_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "reader.py"
    file.write_text("import numpy as np\nrows = np.load('rows.npy')\n")
    assert (reads(file), checks(file)) == ({"np.load"}, False)
    file.write_text("from tfhybrid.values import Column, check\n")
    assert (reads(file), checks(file)) == (set(), True)
