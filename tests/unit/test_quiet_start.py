"""TensorFlow and Keras say nothing at a start, unless the user wants to hear them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from tests.support.keras_versions import IS_KERAS_3

ROOT = Path(__file__).resolve().parents[2]
RELEASE = tuple(map(int, metadata.version("tensorflow").split(".")[:2]))
# These releases of TensorFlow write some lines before they read the variable.
TOO_EARLY = {
    (2, 19): re.compile(r"W0000 .*computation_placer\.cc:\d+\]"),
    (2, 21): re.compile(r"I0000 .*(port|cudart_stub)\.cc:\d+\]"),
}
SCRIPT = """
import tfhybrid
import keras
import numpy as np
import tensorflow as tf
import warnings

tfhybrid.init()
data = tf.data.Dataset.from_tensors((np.ones((2, 1)), np.ones((2, 1))))
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
model.fit(data, verbose=0)
assert len(list(data)) == 1  # its end is a line of TensorFlow's
warnings.warn("a warning about the model")
"""


def lines_of(*options: str, environment: Mapping[str, str]) -> list[str]:
    """Returns what a script writes on standard error, without tfhybrid's own log."""
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    run = subprocess.run(
        [sys.executable, *options, "-c", SCRIPT],
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # Newer releases of TensorFlow write errors of CUDA's libraries before they read the variable.
    ours = ("INFO tfhybrid.", "WARNING: All log messages before", "E0000 ")
    lines = [line for line in run.stderr.splitlines() if not line.startswith(ours)]
    return [
        line for line in lines if RELEASE not in TOO_EARLY or not TOO_EARLY[RELEASE].match(line)
    ]


def test_a_start_is_quiet() -> None:
    first, *others = lines_of(environment={})
    assert first == "<string>:14: UserWarning: a warning about the model"
    assert others in ([], ['  warnings.warn("a warning about the model")'])  # from Python 3.13 on


def test_the_user_can_hear_all() -> None:
    lines = "\n".join(lines_of("-W", "default", environment={"TF_CPP_MIN_LOG_LEVEL": "0"}))
    assert "cpu_feature_guard.cc" in lines
    if (2, 16) <= RELEASE < (2, 21):
        assert "OUT_OF_RANGE: End of sequence" in lines
    if IS_KERAS_3:
        assert "`shuffle=True` was passed" in lines
