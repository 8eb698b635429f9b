"""The description of features in a checkpoint, and how a restore refuses another one."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.resuming_run import crash
from tfhybrid import checkpoint
from tfhybrid.checkpoint.manifest import Manifest
from tfhybrid.checkpoint.stored import folder_of
from tfhybrid.data import Column, Position
from tfhybrid.errors import CheckpointError
from tfhybrid.features import Buckets, Cross, Features, Log
from tfhybrid.features.description import describe, difference

pytestmark = needs_keras_3
COLUMNS = {"city": tf.constant([["Ulm"], ["Bonn"]]), "price": tf.constant([[3.0], [50.0]])}
KEYS = ["city", "range", "both"]
START = {
    "column": {"missing": math.nan},
    "layers": [Log],
    "mean": 1.5,
    "boundaries": [1, 10, 100],
    "words": ["Ulm", "Bonn"],
    "num_bins": 1000,
}


def features_of(**changes: Any) -> Features:
    """Returns features of every kind; `changes` replaces some of `START`."""
    settings = START | changes
    price = Column("price", "number", **settings["column"])
    normalization = keras.layers.Normalization(mean=settings["mean"], variance=4.0)
    words = keras.layers.StringLookup(vocabulary=settings["words"])
    return Features(
        {
            "city": [Column("city", "string"), words],
            "amount": [price, *(layer() for layer in settings["layers"]), normalization],
            "range": [price, Buckets(settings["boundaries"])],
            "both": Cross(["city", "range"], num_bins=settings["num_bins"]),
        }
    )


def body() -> keras.Model:
    """Returns a model of the features, without them."""
    return tfhybrid.models.dnn(KEYS, table=tfhybrid.TableConfig(3), dense={"amount": 1}, hidden=[4])


def compiled(model: keras.Model) -> keras.Model:
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


def started(**changes: Any) -> keras.Model:
    tfhybrid.init()
    return compiled(features_of(**changes).in_front_of(body()))


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    tfhybrid.shutdown()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A directory with a checkpoint of the model of `START`."""
    model = started()
    model.fit(COLUMNS, np.ones((2, 1)), verbose=0)
    checkpoint.save(model, tmp_path, Position(0, 1))
    tfhybrid.shutdown()
    return tmp_path


def manifest_of(directory: Path) -> Path:
    (step,) = checkpoint.steps(directory)
    return Path(folder_of(directory, step)) / "manifest.json"


def test_the_same_features_are_restored_whatever_their_layers_are_called(saved: Path) -> None:
    features = json.loads(manifest_of(saved).read_text())["features"]
    assert features["amount"]["Normalization"]["mean"] == 1.5
    assert features["city"]["StringLookup"]["vocabulary"] == ["Ulm", "Bonn"]
    assert checkpoint.restore(started(), saved) == Position(0, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mean": 1.25},
            r"Normalization.mean of feature 'amount' of column 'price' was 1.5. Received: 1.25\.",
        ),
        ({"boundaries": [1, 20, 100]}, r"Buckets.boundaries\[1\] of .* was 10. Received: 20\."),
        ({"boundaries": [1, 10]}, r"was \[1, 10, 100\]. Received: \[1, 10\]\."),
        ({"words": ["Ulm", "Essen"]}, r"'city'.* was 'Bonn'. Received: 'Essen'\."),
        ({"num_bins": 999}, r"Cross.num_bins of feature 'both' was 1000. Received: 999\."),
        ({"layers": []}, r"layers of feature 'amount'.*\['Log', 'Normalization'\]. Received: \['N"),
        ({"column": {"missing": 0.0}}, r"column.missing of .* was 'nan'. Received: 0.0\."),
    ],
    ids=str,
)
def test_other_features_are_refused_with_both_values(saved: Path, changes, message) -> None:
    model = started(**changes)
    before = model(COLUMNS, training=False)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.restore(model, saved)
    np.testing.assert_array_equal(model(COLUMNS, training=False), before)


def test_tables_that_are_named_are_restored_into_other_features(saved: Path) -> None:
    model = started(mean=1.25)
    assert checkpoint.restore(model, saved, tables=KEYS) == Position(0, 1)


def test_rules_for_bad_rows_may_change(saved: Path) -> None:
    checkpoint.restore(started(column={"missing": math.nan, "low": 0, "high": 1e6}), saved)


def test_a_checkpoint_of_an_older_version_is_restored(saved: Path) -> None:
    path = manifest_of(saved)
    older = json.loads(path.read_text())
    del older["features"], older["crc32c"]
    path.write_text(json.dumps(older))
    assert checkpoint.restore(started(mean=1.25), saved) == Position(0, 1)


def test_a_model_without_features_has_none_and_can_be_restored(saved: Path) -> None:
    tfhybrid.init()
    model = compiled(body())
    assert checkpoint.restore(model, saved) == Position(0, 1)
    folder = saved / "of_the_body"
    checkpoint.save(model, folder, Position(0, 1))
    assert "features" not in json.loads(manifest_of(folder).read_text())
    assert Manifest.read(manifest_of(folder).parent).features == {}


def test_a_run_with_other_features_does_not_resume_from_memory(tmp_path: Path, caplog) -> None:
    """It restores the checkpoint instead, which refuses them."""
    for changes in ({}, {"mean": 1.25}):
        tfhybrid.init("features", resume="memory")
        model = compiled(features_of(**changes).in_front_of(body()))
        with caplog.at_level(logging.INFO, "tfhybrid.checkpoint"):
            checkpoint.restore(model, tmp_path)
        model.fit(COLUMNS, np.ones((2, 1)), verbose=0)
        crash()
    assert "the feature 'amount' was" in caplog.text


def test_descriptions_are_short_and_repeatable() -> None:
    words = [f"word {number}" for number in range(10_000)]
    one, same, other = (
        describe(features_of(words=each).in_front_of(_identity()))
        for each in (words, words, words[::-1])
    )
    assert len(json.dumps(one)) < 10_000
    assert difference(one, same) is None
    assert "StringLookup.vocabulary" in str(difference(one, other))


def _identity() -> keras.Model:
    amount = keras.Input((1,), name="amount")
    return keras.Model({"amount": amount}, keras.layers.Identity()(amount))
