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


@pytest.mark.timeout(300)
def test_a_newcomer_gets_from_the_file_to_predictions(python, tmp_path):
    *programs, last = PROGRAMS
    assert last == "predict.py"
    for name in programs:
        (tmp_path / name).write_text(PROGRAMS[name])
        run = python.run(str(tmp_path / name), cwd=tmp_path)
        assert run.returncode == 0, f"{name}: {run.stderr}"
    reached, best = float(re.search(r"test AUC ([\d.]+)", run.stdout)[1]), best_auc(tmp_path)
    assert f"would reach {best:.4f}" in PAGE.read_text().replace("\n", " ")
    assert 0.95 < (reached - 0.5) / (best - 0.5) < 1
    again = python.run(str(tmp_path / name), cwd=tmp_path)  # all epochs are trained
    assert again.returncode == 0, again.stderr
    assert re.search(r"test AUC [\d.]+", again.stdout)[0] in run.stdout
    shown = re.search(
        r"^\$ head -3 clicks.csv\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert (tmp_path / "clicks.csv").read_text().startswith(shown[1])

    liked, other, new = probabilities_where_only_tensorflow_is(tmp_path)
    assert liked == pytest.approx(0.852, abs=0.1)  # the probabilities that make_clicks.py drew with
    assert other == pytest.approx(0.223, abs=0.15)
    assert new == pytest.approx(0.937, abs=0.1)


def best_auc(folder: Path) -> float:
    """Returns the AUC of the logits with which make_clicks.py drew the clicks of the test file."""
    with (folder / "test.csv").open() as file:
        rows = [*csv.DictReader(file)]
    likes = [int(row["item"][1:]) % 4 == int(row["user"][1:]) % 4 for row in rows]
    logits = [3 * like - 0.1 * float(row["price"]) for like, row in zip(likes, rows, strict=True)]
    return auc(np.array([float(row["click"]) for row in rows]), np.array(logits))


def probabilities_where_only_tensorflow_is(folder: Path) -> list[float]:
    """Returns what the last program prints in an environment without tfhybrid and Horovod."""
    stock = stock_environment.make(folder / "stock")
    (folder / "predict.py").write_text(ALONE + PROGRAMS["predict.py"])
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    run = subprocess.run(
        [stock, "-I", "predict.py"],
        env={name: value for name, value in os.environ.items() if name not in hidden},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [float(line) for line in run.stdout.split()]
