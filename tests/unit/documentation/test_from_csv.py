"""The programs of the page "From a raw CSV to a served model" run one after the other."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.storage.export import stock_environment
from tfhybrid.metrics import auc

PAGE = Path(__file__).resolve().parents[3] / "docs" / "from_csv_to_serving.md"
PROGRAM = re.compile(r'^```python title="(.+?)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
ALONE = """import importlib.util
assert not any(map(importlib.util.find_spec, ("tfhybrid", "horovod")))
"""
PROGRAMS = dict(PROGRAM.findall(PAGE.read_text()))


def test_a_newcomer_gets_from_the_file_to_predictions(python, tmp_path):
    *programs, last = [name for name in PROGRAMS if "films" not in name]
    assert last == "predict.py"
    run = run_in(tmp_path, programs, python)
    name = programs[-1]
    reached, best = float(re.search(r"test AUC ([\d.]+)", run.stdout)[1]), best_auc(tmp_path)
    assert f"would reach {best:.4f}" in PAGE.read_text().replace("\n", " ")
    assert 0.95 < (reached - 0.5) / (best - 0.5) < 1
    again = python.run(str(tmp_path / name), cwd=tmp_path)  # all epochs are trained
    assert again.returncode == 0, again.stderr
    assert re.search(r"test AUC [\d.]+", again.stdout)[0] in run.stdout
    assert_head_is_shown(tmp_path / "clicks.csv")

    liked, other, new = probabilities_where_only_tensorflow_is(tmp_path, last)
    assert liked == pytest.approx(0.852, abs=0.1)  # the probabilities that make_clicks.py drew with
    assert other == pytest.approx(0.223, abs=0.15)
    assert new == pytest.approx(0.937, abs=0.1)


def test_a_column_of_lists_gets_from_the_file_to_predictions(python, tmp_path):
    *programs, last = [name for name in PROGRAMS if "films" in name]
    assert last == "predict_films.py"
    run_in(tmp_path, programs, python)
    assert_head_is_shown(tmp_path / "films.csv")
    liked, other = probabilities_where_only_tensorflow_is(tmp_path, last)
    assert liked == pytest.approx(0.9, abs=0.1)  # the probabilities of make_films.py
    assert other == pytest.approx(0.2, abs=0.1)


def run_in(folder: Path, programs: list[str], python) -> subprocess.CompletedProcess[str]:
    """Runs programs of the page one after the other; returns what the last one wrote."""
    for name in programs:
        (folder / name).write_text(PROGRAMS[name])
        run = python.run(str(folder / name), cwd=folder)
        assert run.returncode == 0, f"{name}: {run.stderr}"
    return run


def assert_head_is_shown(file: Path) -> None:
    """Compares the first lines of a file with those that the page shows."""
    shown = re.search(
        rf"^\$ head -3 {file.name}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown[1].count("\n") == 3
    assert file.read_text().startswith(shown[1])


def best_auc(folder: Path) -> float:
    """Returns the AUC of the logits with which make_clicks.py drew the clicks of the test file."""
    with (folder / "test.csv").open() as file:
        rows = [*csv.DictReader(file)]
    likes = [int(row["item"][1:]) % 4 == int(row["user"][1:]) % 4 for row in rows]
    logits = [3 * like - 0.1 * float(row["price"]) for like, row in zip(likes, rows, strict=True)]
    return auc(np.array([float(row["click"]) for row in rows]), np.array(logits))


def probabilities_where_only_tensorflow_is(folder: Path, program: str) -> list[float]:
    """Returns what a program prints in an environment without tfhybrid and Horovod."""
    stock = stock_environment.make(folder / "stock")
    (folder / program).write_text(ALONE + PROGRAMS[program])
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    run = subprocess.run(
        [stock, "-I", program],
        env={name: value for name, value in os.environ.items() if name not in hidden},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [float(line) for line in run.stdout.split()]
