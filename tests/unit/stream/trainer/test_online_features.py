"""Features that are described once: a stream of raw rows trains what files of them train."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.reference.asynchronous import read_journal
from tests.support.stream.online_site import Site
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.data import Column, Csv, FileBatches
from tfhybrid.errors import ConfigError
from tfhybrid.features import Buckets, Cross, Default, Features, Log, SplitText, Truncate
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, dense_weights

pytestmark = needs_keras_3
ROWS, BATCH = 96, 16
CITIES = ["Ulm", "Bonn", "", "Köln"]
GENRES = ["Crime", "Drama", "War"]
STREAM = {
    "user": "int64",
    "city": "string",
    "genres": "string",
    "price": {"type": "float32", "missing": math.nan},
    "medium": "string",
    "label": "float32",
}
NAMES = ["user", "city", "genres", "price_range", "city_range"]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    return [
        {
            "user": int(random.integers(-9, 9)),
            "city": str(random.choice(CITIES)),
            "genres": "|".join(random.choice(GENRES, random.integers(1, 4))),
            "price": float(random.integers(0, 200)) if random.random() < 0.8 else None,
            "medium": "video",
            "label": float(random.integers(0, 2)),
        }
        for _ in range(ROWS)
    ]


def described() -> Features:
    price = Column("price", "number", missing=math.nan)
    city = Column("city", "string")
    return Features(
        {
            "user": Column("user"),
            "city": city,
            "genres": [Column("genres", "string", length=None), SplitText(), Truncate(2)],
            "amount": [price, Default(1), Log(), keras.layers.Normalization(mean=2, variance=4)],
            "price_range": [price, Buckets([1, 50, 100])],
            "city_range": Cross(["city", "price_range"]),
        }
    )


def model_of(features: Features, *, hashed: bool) -> keras.Model:
    keras.utils.set_random_seed(5)
    table = tfhybrid.TableConfig(3, optimizer=tfhybrid.optimizers.SGD(0.1))
    bag = tfhybrid.TableConfig(3, optimizer=tfhybrid.optimizers.SGD(0.1), combiner="sum")
    tables = dict.fromkeys(NAMES, table) | {"genres": bag}
    body = tfhybrid.models.deepfm(NAMES, table=tables, dense={"amount": 1}, hidden=(4,))
    model = features.in_front_of(body, hashed=hashed)
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def trained_on_files(rows: list[dict[str, Any]], folder: Path) -> keras.Model:
    lines = ["label,user,city,genres,price"]
    for row in rows:
        price = "" if row["price"] is None else row["price"]
        lines.append(f"{row['label']},{row['user']},{row['city']},{row['genres']},{price}")
    (folder / "day.csv").write_text("\n".join(lines) + "\n")
    features = described()
    batches = FileBatches(Csv(**features.columns), folder / "day.csv", BATCH, seed=0, shuffle=False)
    model = model_of(features, hashed=True)
    model.fit(batches.dataset(), verbose=0)
    return model


def fit_stream(site: Site, push: str, tables: dict[str, str] | None = None) -> keras.Model:
    leases = tfhybrid.stream.Leases(
        site.config, model="ads", batch_size=BATCH, wait=False, push=push
    )
    features = described()
    names = [column.name for columns in features.columns.values() for column in columns]
    data = tfhybrid.stream.dataset(leases, features=names, label="label")
    model = model_of(features, hashed=False)
    tables = tables or {name: name for name in NAMES}
    model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=tables)], verbose=0)
    return model


def keys_in(model: keras.Model) -> dict[str, np.ndarray]:
    return {
        name: np.sort(np.concatenate([block.keys for block in table.blocks()]))
        for name, table in tables_of(model).items()
    }


@pytest.mark.usefixtures("job")
def test_a_stream_of_raw_rows_trains_the_weights_of_files(rows, tmp_path, shm_directory) -> None:
    model = trained_on_files(rows, tmp_path)
    keys = keys_in(model)
    assert len(keys["city"]) == len(CITIES)
    assert keys["price_range"].tolist() == [-1, 1, 2, 3]
    expected = {name: table.lookup(keys[name]) for name, table in tables_of(model).items()}
    dense = [np.asarray(v) for v in model.trainable_variables if not isinstance(v, TableProxy)]
    tfhybrid.shutdown()
    tfhybrid.init()

    site = Site(tmp_path, shm_directory, columns=STREAM)
    assert site.provider.put("web", 0, Record(json.dumps(rows).encode())) == ROWS
    fit_stream(site, "gradients")
    spec, _, updates = read_journal(site.journal)
    for name in NAMES:
        streamed = np.unique(np.concatenate([each.keys[name] for each in updates]))
        np.testing.assert_array_equal(streamed, keys[name], err_msg=name)
    weights, _ = site.unit.models["ads"].read({**keys, DENSE_TABLE: updates[0].keys[DENSE_TABLE]})
    for name in NAMES:
        np.testing.assert_array_equal(weights[name], expected[name], err_msg=name)
    for there, here in zip(dense_weights(weights[DENSE_TABLE], spec.dense), dense, strict=True):
        np.testing.assert_array_equal(there, here)
    site.close()


@pytest.mark.usefixtures("job")
def test_pushed_deltas_are_of_the_keys_of_features(rows, tmp_path, shm_directory, caplog) -> None:
    site = Site(tmp_path, shm_directory, columns=STREAM)
    site.provider.put("web", 0, Record(json.dumps(rows).encode()))
    model = fit_stream(site, "deltas")
    assert "that are not in its column" not in caplog.text
    keys = keys_in(model)
    weights, _ = site.unit.models["ads"].read(keys)
    for name, table in tables_of(model).items():
        np.testing.assert_allclose(weights[name], table.lookup(keys[name]), atol=1e-6)
    site.close()


@pytest.mark.usefixtures("job")
def test_a_table_has_no_feature_of_numbers(rows, tmp_path, shm_directory) -> None:
    site = Site(tmp_path, shm_directory, columns=STREAM)
    site.provider.put("web", 0, Record(json.dumps(rows).encode()))
    tables = {name: name for name in NAMES} | {"user": "amount"}
    with pytest.raises(ConfigError, match=r"must have keys. Received: 'amount', which has numbers"):
        fit_stream(site, "deltas", tables)
    site.close()


@pytest.mark.usefixtures("job")
def test_columns_of_features_are_in_the_stream(rows, tmp_path, shm_directory) -> None:
    columns = {name: column for name, column in STREAM.items() if name != "price"}
    site = Site(tmp_path, shm_directory, columns=columns)
    site.provider.put("web", 0, Record(json.dumps(rows).encode()))
    with pytest.raises(ConfigError, match=r"columns of the stream.*Received: \['price'\]"):
        fit_stream(site, "deltas")
    site.close()
