"""Keys of tables in a stream: strings that are hashed, and keys that no column has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference.asynchronous import read_journal
from tests.support.stream.online_site import Site
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.stream.queues.queue import Record


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("push", ["deltas", "gradients"])
def test_strings_are_hashed_as_the_layer_does(
    tmp_path: Path, shm_directory: Path, job: None, push: str, lists: bool
):
    columns = {
        "word": "list<string>" if lists else "string",
        "medium": "string",
        "label": "float32",
    }
    site = Site(tmp_path, shm_directory, columns=columns)
    words = ["a", "123", ""]
    found = [{"word": [w] if lists else w, "medium": "video", "label": 1} for w in words]
    assert site.provider.put("web", 0, Record(json.dumps(found).encode())) == 3
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=4, wait=False, push=push)
    data = tfhybrid.stream.dataset(leases, features=["word"], label="label")
    word = keras.Input((None,) if lists else (), dtype="string", name="word", ragged=lists)
    config = tfhybrid.TableConfig(
        2, combiner="sum" if lists else None, optimizer=tfhybrid.optimizers.SGD(1.0)
    )
    embedding = tfhybrid.layers.Embedding(config, table="words")
    logit = keras.layers.Dense(1)(embedding(tfhybrid.layers.StringKeys()(word)))
    model = keras.Model({"word": word}, logit)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    online = tfhybrid.stream.Online(leases, tables={"words": "word"})
    model.fit(data, callbacks=[online], verbose=0)
    keys = np.sort(tfhybrid.data.string_keys(tf.constant(words)).numpy())
    _, _, updates = read_journal(site.journal)
    np.testing.assert_array_equal(updates[0].keys["words"], keys)
    assert np.all(np.abs(updates[0].values["words"]).sum(axis=1) > 0)
    if push == "deltas":
        there = site.unit.models["ads"].read({"words": keys})[0]["words"]
        (table,) = tables_of(model).values()
        np.testing.assert_allclose(there, table.lookup(keys), atol=1e-6)
    site.close()


@pytest.mark.parametrize(
    ("push", "consequence"),
    [
        ("deltas", "their changes do not reach the sync unit"),
        ("gradients", "their gradients are of initial rows, not of the sync unit's"),
    ],
)
def test_keys_that_are_not_in_the_column_are_named(
    tmp_path: Path, shm_directory: Path, job: None, caplog, push: str, consequence: str
):
    columns = {"word": "string", "medium": "string", "label": "float32"}
    site = Site(tmp_path, shm_directory, columns=columns)
    found = [{"word": "a", "medium": "video", "label": 1}] * 3
    site.provider.put("web", 0, Record(json.dumps(found).encode()))
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=1, wait=False, push=push)
    data = tfhybrid.stream.dataset(leases, features=["word"], label="label")
    word = keras.Input((), dtype="string", name="word")
    number = keras.layers.StringLookup(vocabulary=["a"])(word)
    config = tfhybrid.TableConfig(2, optimizer=tfhybrid.optimizers.SGD(0.1))
    embedding = tfhybrid.layers.Embedding(config, table="words")
    model = keras.Model({"word": word}, keras.layers.Dense(1)(embedding(number)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables={"words": "word"})], verbose=0)
    warning = f"has trained 1 keys that are not in its columns of the stream, so {consequence}"
    assert caplog.text.count(f"Table 'words' {warning}") == 1
    site.close()
