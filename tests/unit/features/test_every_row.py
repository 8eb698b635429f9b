"""Every row of real data sets: features equal those that Python computes row by row."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from tests.support.keras_versions import needs_keras_3
from tests.support.reference import raw_features as reference
from tfhybrid.data import Column, Csv
from tfhybrid.data.archives import FRAPPE_FEATURES, unpacked
from tfhybrid.features import Buckets, Clip, Cross, Default, Features, Log, SplitText

pytestmark = needs_keras_3

CRITEO = ["label", *[f"I{i}" for i in range(1, 14)], *[f"C{i}" for i in range(1, 27)]]
NUMBERS, TEXTS = CRITEO[1:14], CRITEO[14:]
BOUNDARIES = [0.0, 1.0, 2.5, 10.0, 100.0, 12345.0]
MEAN, VARIANCE = 1.25, 3.5


def rows_of(path, names=None, delimiter=","):
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines, names, delimiter=delimiter))


def lists(feature):
    return feature.to_list() if isinstance(feature, tf.RaggedTensor) else feature.numpy().tolist()


def normalization():
    return keras.layers.Normalization(mean=MEAN, variance=VARIANCE)


def equal_bits(first, second):
    assert first.keys() == second.keys()
    for name, each in first.items():
        others = [second[name], each]
        flat = [t.flat_values if isinstance(t, tf.RaggedTensor) else t for t in others]
        assert flat[0].numpy().tobytes() == flat[1].numpy().tobytes(), name


def read(features, path, **layout):
    """Returns features of what a reader makes of a file: keys in place of texts."""
    clicks = Csv(**features.columns, **layout).read(path)
    columns = {name: tensor_of(each) for name, each in clicks.features.items()}
    return features(columns | {name: tf.constant(each) for name, each in clicks.dense.items()})


def tensor_of(keys):
    if isinstance(keys, np.ndarray):
        return tf.constant(keys)
    return tf.RaggedTensor.from_row_splits(keys.values, keys.splits)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_frappe(real_data, part):
    path = unpacked("frappe_x1") / f"{part}.csv"
    rows = rows_of(path)
    features = Features(
        {name: Column(name) for name in FRAPPE_FEATURES}
        | {"user_item": Cross(["user", "item"]), "where": Cross(["user", "country", "city"], 500)}
    )

    results = read(features, path)

    keys = {name: [int(row[name]) for row in rows] for name in FRAPPE_FEATURES}
    for name in FRAPPE_FEATURES:
        assert lists(results[name]) == [[key] for key in keys[name]]
    crossed = zip(keys["user"], keys["item"], strict=True)
    assert lists(results["user_item"]) == [reference.crossed([[u], [i]]) for u, i in crossed]
    places = zip(keys["user"], keys["country"], keys["city"], strict=True)
    expected = [reference.crossed([[each] for each in place], 500) for place in places]
    assert lists(results["where"]) == expected


def test_movielens(real_data):
    path = unpacked("movielens-stream") / "ratings_by_time.csv"
    rows = rows_of(path)
    eras = [900_000_000, 1_200_000_000.5]
    features = Features(
        {
            "user": Column("user"),
            "genres": [Column("genres", "string", length=None), SplitText()],
            "era": [Column("timestamp"), Buckets(eras)],
            "year": [Column("timestamp"), normalization()],
            "user_genres": Cross(["user", "genres"]),
        }
    )
    columns = {name: tf.constant([int(r[name]) for r in rows]) for name in ("user", "timestamp")}

    results = features(columns | {"genres": tf.constant([row["genres"] for row in rows])})

    users = [int(row["user"]) for row in rows]
    times = [int(row["timestamp"]) for row in rows]
    texts = [row["genres"].encode().split(b"|") if row["genres"] else [] for row in rows]
    genres = [[reference.text_key(each) for each in row] for row in texts]
    assert lists(results["genres"]) == genres
    assert lists(results["era"]) == [[sum(t >= era for era in eras)] for t in times]
    pairs = zip(users, genres, strict=True)
    assert lists(results["user_genres"]) == [reference.crossed([[u], g]) for u, g in pairs]
    expected = reference.normalized(np.float32(times), MEAN, VARIANCE)
    assert reference.ulps_between(results["year"], expected) <= 2
    equal_bits(results, read(features, path, label="rating", positive=4.0))


def test_criteo(real_data):
    path = unpacked("criteo-head8000") / "train.tsv"
    rows = rows_of(path, CRITEO, "\t")
    features = Features(
        {name: Column(name, "string") for name in TEXTS}
        | {f"{name}_range": [number(name), Buckets(BOUNDARIES)] for name in NUMBERS}
        | {
            name: [number(name), Default(0.5), Clip(-1, 1e4), Log(), normalization()]
            for name in NUMBERS
        }
        | {"pair": Cross(["C1", "I1_range", "C26"])}
    )
    numbers = {name: np.float32([float(row[name] or "nan") for row in rows]) for name in NUMBERS}
    texts = {name: [row[name] for row in rows] for name in TEXTS}

    results = features({name: tf.constant(each) for name, each in (numbers | texts).items()})

    for name, column in texts.items():
        keys = [[reference.text_key(each.encode())] for each in column]
        assert lists(results[name]) == keys
    for name, column in numbers.items():
        ranges = [[reference.bucket(each, BOUNDARIES)] for each in column]
        assert lists(results[f"{name}_range"]) == ranges
        logs = [logarithm(each) for each in column]
        expected = reference.normalized(np.float32(logs), MEAN, VARIANCE)
        assert reference.ulps_between(results[name].numpy().ravel(), expected) <= 2
    parts = zip(*(lists(results[name]) for name in ("C1", "I1_range", "C26")), strict=True)
    assert lists(results["pair"]) == [reference.crossed(each) for each in parts]
    equal_bits(results, read(features, path, columns=CRITEO, delimiter="\t"))


def number(name):
    return Column(name, "number", missing=math.nan)


def logarithm(value):
    value = np.float32(0.5) if np.isnan(value) else value
    return reference.logarithm(min(max(value, np.float32(-1)), np.float32(1e4)))


def test_avazu(real_data):
    path = unpacked("avazu-head8999") / "train.csv"
    rows = rows_of(path)
    names = [name for name in rows[0] if name not in ("id", "click")]
    features = Features(
        {name: Column(name, "string") for name in names}
        | {"place": Cross(["site_id", "app_id", "device_ip"])}
    )

    results = features({name: tf.constant([row[name] for row in rows]) for name in names})

    for name in names:
        keys = [[reference.text_key(row[name].encode())] for row in rows]
        assert lists(results[name]) == keys
    parts = zip(*(lists(results[n]) for n in ("site_id", "app_id", "device_ip")), strict=True)
    assert lists(results["place"]) == [reference.crossed(each) for each in parts]
    equal_bits(results, read(features, path, label="click"))


def test_talkingdata(real_data):
    path = unpacked("talkingdata") / "train_sample.csv"
    rows = rows_of(path)
    names = ["ip", "app", "device", "os", "channel"]
    features = Features(
        {name: Column(name) for name in names}
        | {"ip_os": Cross(["ip", "os"]), "time": Column("click_time", "time")}
    )

    results = read(features, path, label="is_attributed")

    keys = {name: [int(row[name]) for row in rows] for name in names}
    for name in names:
        assert lists(results[name]) == [[key] for key in keys[name]]
    pairs = zip(keys["ip"], keys["os"], strict=True)
    assert lists(results["ip_os"]) == [reference.crossed([[ip], [os]]) for ip, os in pairs]
    times = np.array([row["click_time"] for row in rows], "datetime64[us]").astype(np.int64)
    assert results["time"].numpy().ravel().tolist() == times.tolist()
