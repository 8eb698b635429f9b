"""`tfhybrid train` on lists of keys and strings, and on numbers, for every model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import yaml

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.cli.train.settings_file import SettingsFile
from tfhybrid.cli.train.train_settings import MODEL_OPTIONS
from tfhybrid.cli.train.training import Training
from tfhybrid.errors import ConfigError

SAMPLES = 128
WORDS = np.array(["a", "bb", "", "ccc"])


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a model of lists: any number of keys, two keys, any number of strings, two numbers."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 4, SAMPLES)
    columns = {
        "item": rng.integers(0, 9, SAMPLES),
        "seen": [rng.integers(0, 9, length) for length in lengths],
        "pair": pa.array(rng.integers(0, 5, (SAMPLES, 2)).tolist(), pa.list_(pa.int64(), 2)),
        "tags": [WORDS[rng.integers(0, 4, length)].tolist() for length in lengths],
        "price": rng.random(SAMPLES),
        "vector": pa.array(rng.random((SAMPLES, 2)).tolist(), pa.list_(pa.float32(), 2)),
        "label": rng.integers(0, 2, SAMPLES),
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "day.parquet")
    return {
        "data": {
            **{"train": str(tmp_path / "day.parquet"), "batch_size": 64},
            **{"features": ["item", "seen", "pair", "tags"], "dense": ["price", "vector"]},
        },
        "model": {"name": "dnn", "hidden": [4]},
        "table": {"dim": 3, "max_length": 2},
        "tables": {
            "tags": {"combiner": "sum", "max_length": 1, "keep": "last", "gather_on": "device"}
        },
    }


def training(settings: dict[str, Any], tmp_path: Path, *, trial: bool = False) -> Training:
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(settings))
    return Training(SettingsFile(path), trial=trial)


@pytest.mark.parametrize("name", MODEL_OPTIONS)
def test_every_model_reads_lists_and_numbers(settings, tmp_path, name) -> None:
    settings["model"] = {"name": name}
    if "hidden" in MODEL_OPTIONS[name]:
        settings["model"]["hidden"] = [4]
    if name == "din":
        settings["model"]["behaviours"] = {"seen": "item"}
    assert training(settings, tmp_path).run()["step"] == 2


def test_lists_are_combined_as_their_tables_say_and_served(settings, tmp_path) -> None:
    settings["export"] = {"directory": str(tmp_path / "exported")}
    trained = training(settings, tmp_path)
    (layer,) = (each for each in trained.model.layers if hasattr(each, "tables"))
    rules = {
        name: (config.combiner, config.max_length, config.keep, config.gather_on)
        for name, config in layer._configs.items()
    }
    assert rules == {
        "item": (None, None, "first", "host"),
        "seen": ("mean", 2, "first", "host"),
        "pair": ("mean", 2, "first", "host"),
        "tags": ("sum", 1, "last", "device"),
    }
    folder = trained.run()["exported"]
    assert tables_of(trained.model)["tags"].rows == len(WORDS)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    splits = tf.constant([0, 2, 2], tf.int64)
    tags = tfhybrid.data.string_keys(tf.constant(["a", "zz"]))
    lists = {"seen": [3, 4], "pair": [1, 2], "tags": tags}
    request = {"item": tf.constant([[3], [5]], tf.int64)}
    request |= {name: tf.cast(keys, tf.int64) for name, keys in lists.items()}
    request |= {f"{name}_row_splits": splits for name in lists}
    request |= {"price": tf.constant([[0.5], [2]]), "vector": tf.constant([[1.0, 2], [3, 4]])}
    inputs = {name: request[name] for name in ("item", "price", "vector")} | {
        name: tf.RaggedTensor.from_row_splits(request[name], splits) for name in lists
    }
    expected = trained.model(inputs, training=False)
    np.testing.assert_allclose(served(**request)["output_0"], expected, atol=1e-6)


@needs_keras_3
def test_numbers_of_any_length_are_refused(settings, tmp_path) -> None:
    settings["data"] |= {"features": ["item", "seen"], "dense": []}
    settings["features"] = {
        "item": "item",
        "counts": ["seen", {"normalization": {"mean": 0, "variance": 1}}],
    }
    del settings["tables"]
    message = r"features.counts: numbers have one length.*end with buckets.*Received: \['counts'\]"
    with pytest.raises(ConfigError, match=message):
        training(settings, tmp_path)
