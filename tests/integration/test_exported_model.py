"""An exported model in an environment that has only TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from benchmarks.storage.export import stock_environment
from tests.integration.conftest import JOBS
from tests.support.serving.predictions import assert_predicted
from tfhybrid import export
from tfhybrid.models import deepfm

ROOT = Path(__file__).resolve().parents[2]
FEATURES = ("user", "item", "hour")
INT64 = np.iinfo(np.int64)


@pytest.fixture(scope="module")
def stock_python(tmp_path_factory) -> Path:
    """The interpreter of an environment that has only TensorFlow."""
    return stock_environment.make(tmp_path_factory.mktemp("stock") / "environment")


def serve(python: Path, folder: Path, inputs: Path, outputs: Path) -> np.ndarray:
    """Returns the predictions of a process that sees neither this checkout nor its environment."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    run = subprocess.run(
        [python, "-I", JOBS / "serve_exported.py", folder, inputs, outputs],
        env={name: value for name, value in os.environ.items() if name not in hidden},
        cwd=outputs.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    with np.load(outputs) as arrays:
        return arrays["output_0"]


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("initializer", "unseen"),
    [("uniform", None), ("uniform", "initial"), ("truncated_normal", "initial")],
)
def test_stock_tensorflow_predicts_the_same(initializer, unseen, stock_python, tmp_path) -> None:
    rng = np.random.default_rng(0)
    keys = {name: rng.integers(INT64.min, INT64.max, (256, 1)) for name in FEATURES}
    keys["user"][:2, 0] = INT64.min, INT64.max
    table = tfhybrid.TableConfig(8, initializer, unseen=unseen)
    model = deepfm(FEATURES, table=table, hidden=(32,))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.05)), loss)
    held = {name: values[:128] for name, values in keys.items()}
    model.fit(held, rng.integers(0, 2, 128), epochs=3, verbose=0)

    folder = export.saved_model(model, tmp_path / "model")
    np.savez(tmp_path / "inputs.npz", **keys)
    served = serve(stock_python, folder, tmp_path / "inputs.npz", tmp_path / "outputs.npz")
    assert_predicted(served, model.predict(keys, verbose=0))


def test_all_ranks_export_together_and_learn_of_a_failure(stock_python, tmp_path) -> None:
    horovodrun = Path(sys.executable).with_name("horovodrun")
    run = subprocess.run(
        [horovodrun, "--gloo", "-np", "2", sys.executable, JOBS / "exporter.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for rank in (0, 1):
        assert f"rank={rank} folder=1 refused" in run.stdout
    served = serve(stock_python, tmp_path / "1", tmp_path / "inputs.npz", tmp_path / "outputs.npz")
    with np.load(tmp_path / "expected.npz") as expected:
        assert_predicted(served, expected["output_0"])
