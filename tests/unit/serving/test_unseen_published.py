"""What keys without a row read in a model that is trained online and served."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.stream.online_site import Site
from tfhybrid.core import native
from tfhybrid.errors import ConfigError
from tfhybrid.serving import Reader, ServedModel, StockExport
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

NEW = np.array([700, -8, 2**63 - 1])
DIM = 4


def model_of(unseen: str | None) -> keras.Model:
    """A model whose output is the sum of an embedding."""
    config = tfhybrid.TableConfig(DIM, optimizer=tfhybrid.optimizers.SGD(0.1), unseen=unseen)
    item = keras.Input((), dtype="int64", name="item")
    embedding = tfhybrid.layers.Embedding(config, table="items")(item)
    scale = keras.layers.Dense(1, kernel_initializer="ones", trainable=False)
    model = keras.Model({"item": item}, scale(embedding))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def fit(site: Site, model: keras.Model, *, push: str = "deltas") -> None:
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=64, wait=False, push=push)
    data = tfhybrid.stream.dataset(leases, features=["item"], label="label")
    online = tfhybrid.stream.Online(leases, tables={"items": "item"})
    validate = tfhybrid.stream.Validate(leases, features=["item"], label="label", rows=16)
    model.fit(data, callbacks=[online, validate], verbose=0)


@pytest.mark.parametrize("unseen", [None, "zeros", "initial"])
@pytest.mark.parametrize("push", ["deltas", "gradients"])
def test_readers_of_publications_read_what_the_trainer_predicts(
    site: Site, tmp_path: Path, unseen: str | None, push: str
) -> None:
    model = model_of(unseen)
    tfhybrid.export.serving_graph(model, tmp_path / "graph")
    site.put(200)
    fit(site, model, push=push)
    site.unit.publishers["ads"].publish()
    reader = Reader(tmp_path / "publications", memory=site.settings.memory)
    reader.refresh()
    table = model.layers[1].table
    known = np.unique(np.concatenate([block.keys for block in table.blocks()]))
    assert len(known) > 9
    keys = np.concatenate([NEW, known[:9]])
    rows = table.lookup(keys)
    initial = native.initial_rows(
        *table.config.initializer.native, native.table_seed(table.seed, "items"), NEW, DIM
    )
    np.testing.assert_array_equal(rows[: len(NEW)], initial)
    if unseen != "initial":
        rows[: len(NEW)] = 0
    published = reader.read({"items": keys}).rows["items"]
    np.testing.assert_array_equal(published[: len(NEW)], rows[: len(NEW)])
    if push == "deltas":  # with gradients, the trainer lacks its last update
        np.testing.assert_allclose(published, rows, rtol=0, atol=1e-6)
    logits = published.sum(axis=1, keepdims=True) + np.asarray(model.layers[2].bias)
    close = {"rtol": 0, "atol": 1e-5}
    predicted = model.predict({"item": keys}, verbose=0)
    read = len(keys) if push == "deltas" else len(NEW)
    np.testing.assert_allclose(predicted[:read], logits[:read], **close)
    served = ServedModel(tmp_path / "graph", reader).predict({"item": keys})["output_0"]
    np.testing.assert_allclose(served, logits, **close)
    stock = StockExport(reader, tmp_path / "graph", tmp_path / "stock").export()
    signature = tf.saved_model.load(str(stock)).signatures["serving_default"]
    np.testing.assert_allclose(signature(item=tf.constant(keys))["output_0"], logits, **close)
    reader.close()


def test_a_target_model_keeps_what_its_first_trainer_said(site: Site, tmp_path: Path) -> None:
    """So one of an older version, which said nothing, goes on with initial values."""
    site.put(100)
    fit(site, model_of("initial"))
    before = site.unit.models["ads"]._weights.opened().spec
    assert "unseen" not in before.to_json()
    tfhybrid.shutdown()
    keras.backend.clear_session()
    tfhybrid.init()
    site.put(100, seed=1)
    fit(site, model_of("zeros"))
    assert site.unit.models["ads"]._weights.opened().spec == before
    site.unit.publishers["ads"].publish()
    reader = Reader(tmp_path / "publications", memory=site.settings.memory)
    reader.refresh()
    assert reader.read({"items": NEW}).rows["items"].all()
    reader.close()


def test_progressive_validation_says_what_it_read(site: Site, caplog) -> None:
    site.put(80)
    with caplog.at_level(logging.INFO, "tfhybrid.stream"):
        fit(site, model_of(None))
    assert "keys without a row read their initial values" in caplog.text


def test_a_specification_is_read_with_and_without_the_field() -> None:
    zeros = ModelSpec({"item": TableSpec(3, unseen="zeros"), "user": TableSpec(2)})
    fields = json.loads(zeros.to_json())["tables"]
    assert fields["item"]["unseen"] == "zeros"
    assert "unseen" not in fields["user"]
    assert ModelSpec.from_json(zeros.to_json()).tables == zeros.tables
    other = ModelSpec({"item": TableSpec(3), "shop": TableSpec(2)})
    assert zeros.with_unseen(other).tables["item"].unseen == "initial"
    assert zeros.with_unseen(other).tables["user"] == zeros.tables["user"]
    with pytest.raises(ConfigError, match="unseen"):
        ModelSpec.from_json(zeros.to_json().replace('"zeros"', '"ones"'))
