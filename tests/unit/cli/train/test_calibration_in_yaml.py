"""`tfhybrid train` with a calibration of the exported model, and what `--check` finds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import yaml

import tfhybrid
from tfhybrid.cli.train.settings_file import SettingsFile
from tfhybrid.cli.train.training import Training
from tfhybrid.errors import ConfigError, DataError

SAMPLES = 256


def write_days(folder: Path, labels: np.ndarray) -> None:
    items = np.random.default_rng(1).integers(0, 9, SAMPLES)
    table = {"item": items, "user": items[::-1], "label": labels}
    for day in ("day", "held_out"):
        pa.parquet.write_table(pa.table(table), folder / f"{day}.parquet")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a small job whose held-out samples begin with 64 of one class."""
    labels = np.zeros(SAMPLES, np.int64)
    labels[64::3] = 1
    write_days(tmp_path, labels)
    return {
        "data": {
            **{"train": str(tmp_path / "day.parquet"), "batch_size": 32},
            "features": ["user", "item"],
        },
        "model": {"name": "fm"},
        "export": {"directory": str(tmp_path / "exported")},
        "calibration": {
            **{"method": "isotonic", "files": str(tmp_path / "held_out.parquet")},
            **{"batch_size": 16, "negative_rate": 0.5},
        },
    }


def training(settings: dict[str, Any], tmp_path: Path, *, trial: bool = False) -> Training:
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(settings))
    return Training(SettingsFile(path), trial=trial)


@pytest.mark.parametrize("method", ["isotonic", "platt", None])
def test_the_exported_model_is_calibrated(settings, tmp_path, method) -> None:
    if method is None:
        settings["calibration"] = {"negative_rate": 0.5}
    else:
        settings["calibration"]["method"] = method
    trained = training(settings, tmp_path)
    folder = trained.run()["exported"]
    keys = {name: np.arange(9)[:, np.newaxis] for name in ("user", "item")}
    served = tf.saved_model.load(folder).signatures["serving_default"]
    outputs = served(**{name: tf.constant(each) for name, each in keys.items()})["output_0"]
    layer = tfhybrid.layers.Calibration(negative_rate=0.5)
    if method is not None:
        layer = tfhybrid.layers.Calibration.fitted(
            trained.model, trained.held_out, method, negative_rate=0.5
        )
    expected = layer(trained.model(keys, training=False))
    np.testing.assert_allclose(tf.sigmoid(outputs), tf.sigmoid(expected), atol=1e-4)


def test_a_check_reads_until_it_has_both_classes_and_refuses_one(settings, tmp_path) -> None:
    training(settings, tmp_path, trial=True).try_out()
    assert not (tmp_path / "exported").exists()
    tfhybrid.shutdown()
    write_days(tmp_path, np.zeros(SAMPLES, np.int64))
    with pytest.raises(DataError, match=r"yaml:\d: calibration: .*both classes"):
        training(settings, tmp_path, trial=True).try_out()


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ({"method": "platt"}, "method and files need each other"),
        ({"files": "held_out.parquet"}, "method and files need each other"),
        ({}, "needs a method and files, or a negative_rate below 1"),
        ({"method": "beta", "files": "x"}, "calibration.method: input should be 'isotonic' or"),
        ({"negative_rate": 0}, "calibration.negative_rate: input should be greater than 0"),
        ({"negative_rate": 2}, "calibration.negative_rate: input should be less than or equal to"),
        ({"method": "platt", "files": "nowhere.parquet"}, "calibration: Expected files at"),
    ],
)
def test_calibrations_that_make_no_sense_are_named(
    settings, tmp_path, calibration, message
) -> None:
    settings["calibration"] = calibration
    with pytest.raises((ConfigError, DataError), match=re.escape(message)):
        training(settings, tmp_path, trial=True)


def test_a_calibration_needs_an_export(settings, tmp_path) -> None:
    del settings["export"]
    with pytest.raises(ConfigError, match="calibration is for the exported model: add an export"):
        training(settings, tmp_path)


def test_a_check_refuses_to_resume_within_an_epoch_of_other_samples(settings, tmp_path) -> None:
    del settings["calibration"], settings["export"]
    settings["checkpoints"] = {"directory": str(tmp_path / "saved"), "save_freq": 3}
    training(settings, tmp_path).run()
    tfhybrid.shutdown()
    shutil.rmtree(tmp_path / "saved" / "step-0000000008")  # as if the job had died before
    training(settings, tmp_path, trial=True).try_out()
    tfhybrid.shutdown()
    settings["data"]["train"] = str(tmp_path / "held_out.parquet")
    for trial, run in ((True, Training.try_out), (False, Training.run)):
        with pytest.raises(ConfigError, match="within an epoch of other data"):
            run(training(settings, tmp_path, trial=trial))
        tfhybrid.shutdown()
