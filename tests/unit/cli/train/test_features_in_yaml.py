"""`features:` of `tfhybrid train`: trained on what a reader yields, served with raw columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.cli.train.settings_file import SettingsFile
from tfhybrid.cli.train.training import Training
from tfhybrid.errors import ConfigError

pytestmark = needs_keras_3

ROWS = """label,user,city,genres,price
1,7,Ulm,Crime|Drama,3
0,7,,,
1,7,Bonn,War,250
0,9,Ulm,Drama,1e9
"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a model of features of every kind."""
    path = tmp_path / "day.csv"
    path.write_text(ROWS)
    return {
        "data": {
            **{"train": str(path), "batch_size": 2, "format": "csv"},
            **{"features": ["user"], "strings": ["city", "genres"], "lists": ["genres"]},
            "dense": [{"name": "price", "missing": float("nan")}],
        },
        "features": {
            "user": "user",
            "city": "city",
            "genres": ["genres", {"split": "|"}, {"truncate": 1, "keep": "last"}],
            "price_range": ["price", {"clip": [None, 1000]}, {"buckets": [1, 10, 100]}],
            "price": [
                *("price", {"default": 2}, {"clip": [0, 100]}, "log"),
                {"normalization": {"mean": 1.5, "variance": 4}},
            ],
            "city_range": {"cross": ["city", "price_range"]},
        },
        "model": {"name": "dlrm", "hidden": [4], "bottom": [3]},
        "table": {"dim": 3},
        "evaluation": {"files": str(path), "batch_size": 4, "group": "user"},
        "checkpoints": {"directory": str(tmp_path / "saved")},
        "export": {"directory": str(tmp_path / "exported")},
    }


def training(settings: dict[str, Any], tmp_path: Path, *, trial: bool = False) -> Training:
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(settings))
    return Training(SettingsFile(path), trial=trial)


def test_a_model_of_features_is_trained_and_served(settings, tmp_path) -> None:
    job = training(settings, tmp_path)
    result = job.run()
    assert result["step"] == 2
    tables = tables_of(job.model)
    assert sorted(tables) == ["city", "city_range", "genres", "price_range", "user"]
    keys = {
        name: sorted(key for block in table.blocks() for key in block.keys.tolist())
        for name, table in tables.items()
    }
    assert keys["price_range"] == [-1, 1, 3]
    ulm, bonn, empty = (int(tfhybrid.data.string_keys([each])[0]) for each in ("Ulm", "Bonn", ""))
    assert keys["city"] == sorted([ulm, bonn, empty])
    assert len(keys["genres"]) == 2  # the last of each list

    served = tf.saved_model.load(result["exported"]).signatures["serving_default"](
        user=tf.constant([[7], [7], [7], [9]], tf.int64),
        city=tf.constant([["Ulm"], [""], ["Bonn"], ["Ulm"]]),
        genres=tf.constant([["Crime|Drama"], [""], ["War"], ["Drama"]]),
        price=tf.constant([[3], [np.nan], [250], [1e9]]),
    )
    (columns, _), *_ = job.evaluated
    expected = job.model(columns, training=False)
    np.testing.assert_array_equal(served["output_0"], expected)


def test_a_model_of_features_resumes(settings, tmp_path) -> None:
    del settings["export"], settings["evaluation"]
    training(settings, tmp_path).run()
    tfhybrid.shutdown()
    settings["epochs"] = 2
    assert training(settings, tmp_path).run()["step"] == 4


def test_a_trial_keeps_nothing(settings, tmp_path) -> None:
    training(settings, tmp_path, trial=True).try_out()
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("city2", r"model.yaml:\d+: features: .*column of the data.*Received: 'city2'"),
        (["price", "logs"], "a layer is log, or a mapping.*Received: 'logs'"),
        (["price", {"clip": [0, 1], "default": 0}], "a layer has one of"),
        (["price", "log", {"buckets": [1]}], "Buckets are cut on the numbers of the data"),
        (["genres", {"normalization": {"mean": 0, "variance": 1}}], "cannot take"),
        ({"cross": ["user", "price"]}, "a Cross takes features of keys"),
        ({"crosses": ["user", "city"]}, "there is no such setting"),
    ],
)
def test_a_wrong_feature_is_named_with_its_line(settings, tmp_path, feature, message) -> None:
    settings["features"]["more"] = feature
    with pytest.raises(ConfigError, match=message):
        training(settings, tmp_path)


def test_a_column_that_no_feature_reads_is_refused(settings, tmp_path) -> None:
    del settings["features"]["user"]
    with pytest.raises(ConfigError, match=r"read all columns of the data. Received: .*'user'"):
        training(settings, tmp_path)
