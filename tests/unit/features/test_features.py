"""Features: what each value becomes, and that it becomes the same everywhere."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.reference import raw_features as reference
from tests.support.strict import no_warnings
from tfhybrid.data import Column
from tfhybrid.errors import ConfigError
from tfhybrid.features import Buckets, Clip, Cross, Default, Features, Log, SplitText, Truncate

pytestmark = needs_keras_3

NAN, INF = math.nan, math.inf
INT64 = [-(2**63), -(2**31), -1, 0, 2**31 - 1, 2**53 + 1, 2**63 - 1]
TEXTS = [b"", b"a", "schön".encode(), b"\xff\xfe\x00", b"x" * 200]
PRICE = Column("price", "number")
TAGS = Column("tags", "string", length=None)
BOUNDARIES = [0.0, 0.1, 0.7, 10.0]


def of_column(column, *layers, values):
    """Returns a feature of one column, as a list."""
    feature = Features({"it": [column, *layers]})({column.name: values})["it"]
    return feature.to_list() if isinstance(feature, tf.RaggedTensor) else feature.numpy().tolist()


def everything(**options):
    """Returns features of every kind."""
    user, city = Column("user"), Column("city", "string")
    genres = Column("genres", "string", length=None)
    price = Column("price", "number", missing=NAN)
    return Features(
        {
            "user": user,
            "city": city,
            "word": [city, keras.layers.StringLookup(vocabulary=["a", "b"])],
            "price": [price, Default(1.0), Clip(0, 50), Log(), normalization()],
            "range": [price, Buckets(BOUNDARIES)],
            "genres": [genres, Truncate(2)],
            "tags": [TAGS, SplitText()],
            "user_range": Cross(["user", "range"]),
            "genres_range": Cross(["genres", "range"]),
        },
        **options,
    )


def normalization(**options):
    return keras.layers.Normalization(mean=1.5, variance=4.0, **options)


COLUMNS = {
    "user": tf.constant([[1], [-2], [3]], tf.int64),
    "city": tf.constant([["a"], [""], ["z"]]),
    "price": tf.constant([[NAN], [5.0], [1e9]]),
    "genres": tf.ragged.constant([["a", "b", "c"], [], ["d"]]),
    "tags": tf.constant([["a|b"], [""], ["|"]]),
}


def listed(features):
    """Returns features as lists, with the bits of numbers."""
    lists = {}
    for name, each in features.items():
        values = each.flat_values if isinstance(each, tf.RaggedTensor) else each
        splits = each.row_splits.numpy().tolist() if isinstance(each, tf.RaggedTensor) else None
        lists[name] = (values.dtype.name, values.numpy().tobytes(), splits)
    return lists


def test_whole_numbers_are_keys_as_they_are():
    values = tf.constant([[each] for each in INT64], tf.int64)
    assert of_column(Column("user"), values=values) == [[each] for each in INT64]
    small = tf.constant([-(2**31), 2**31 - 1], tf.int32)
    assert of_column(Column("user"), values=small) == [[-(2**31)], [2**31 - 1]]


def test_texts_are_the_keys_of_readers_whatever_their_bytes():
    texts = tf.constant([[text] for text in TEXTS])
    expected = [[reference.text_key(text)] for text in TEXTS]
    assert of_column(Column("city", "string"), values=texts) == expected
    hashing = keras.layers.Hashing(2**63 - 1)
    assert of_column(Column("city", "string"), hashing, values=texts) == expected
    assert tfhybrid.data.string_keys(texts).numpy().tolist() == expected
    keys = tf.constant(expected, tf.int64)
    assert of_column(Column("city", "string"), values=keys) == expected


def test_a_missing_text_is_that_of_its_column():
    column = Column("city", "string", missing="none", empty="missing")
    expected = [[reference.text_key(b"none")], [reference.text_key(b"a")]]
    assert of_column(column, values=tf.constant(["", "a"])) == expected


def test_numbers_are_cut_into_buckets_as_float32():
    numbers = [-INF, -1.0, -0.0, 0.0, 0.1, 0.7, 9.999999, 10.0, INF, NAN, 3e38]
    values = tf.constant(numbers, tf.float32)
    expected = [[reference.bucket(each, BOUNDARIES)] for each in values.numpy()]
    assert of_column(PRICE, Buckets(BOUNDARIES), values=values) == expected
    finite = tf.constant([each for each in numbers if each == each])
    of_keras = keras.layers.Discretization(bin_boundaries=BOUNDARIES)(finite)
    np.testing.assert_array_equal(Buckets(BOUNDARIES)(finite), of_keras)


def test_whole_numbers_are_cut_into_buckets_exactly():
    boundaries = [-1e30, -0.5, 2**53 + 1, 2**63 - 1, 1e30]
    expected = [[sum(each >= bound for bound in boundaries)] for each in INT64]
    values = tf.constant([[each] for each in INT64], tf.int64)
    assert of_column(Column("age"), Buckets(boundaries), values=values) == expected


def test_wide_and_whole_numbers_are_clipped_exactly():
    wide = tf.constant([[0.1], [5.0]], tf.float64)
    column = Column("price", "number", dtype="float64")
    assert of_column(column, Clip(0.3, 0.7), Buckets([0.3, 0.7]), values=wide) == [[1], [2]]
    whole = tf.constant([[each] for each in INT64], tf.int64)
    limits = [(0.5, 2**31 - 1), (-(2**53) - 1, 2**53 + 1), (-1e30, 1e30)]
    for low, high in limits:
        expected = [[min(max(each, math.ceil(low)), math.floor(high))] for each in INT64]
        assert of_column(Column("age"), Clip(low, high), values=whole) == expected


def test_wide_numbers_are_cut_into_buckets_exactly():
    column = Column("price", "number", dtype="float64")
    values = tf.constant([[0.1], [np.nextafter(0.1, 0)]], tf.float64)
    assert of_column(column, Buckets([0.1]), values=values) == [[1], [0]]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([], [NAN, -INF, INF, -2.0, 5.0, 2.0**63]),
        ([Default(7)], [7.0, -INF, INF, -2.0, 5.0, 2.0**63]),
        ([Clip(0, 4)], [NAN, 0.0, 4.0, 0.0, 4.0, 4.0]),
        ([Clip(low=0)], [NAN, 0.0, INF, 0.0, 5.0, 2.0**63]),
        ([Log()], [NAN, 0.0, INF, 0.0, math.log(6), math.log(2.0**63)]),
    ],
)
def test_numbers_and_their_extremes(layers, expected):
    values = tf.constant([NAN, -INF, INF, -2.0, 5.0, float(2**63 - 1)])
    results = of_column(PRICE, *layers, values=values)
    np.testing.assert_array_equal(np.float32(expected), np.float32(results).ravel())


def test_whole_numbers_of_requests_become_the_floats_of_their_column():
    values = tf.constant([[2**63 - 1], [2**24 + 1]], tf.int64)
    assert of_column(PRICE, values=values) == [[2.0**63], [2.0**24]]


def test_a_missing_number_is_that_of_its_column():
    column = Column("price", "number", missing=3.0)
    assert of_column(column, values=tf.constant([NAN, 1.0])) == [[3.0], [1.0]]
    lists = Column("price", "number", missing=3.0, length=None)
    assert of_column(lists, values=tf.ragged.constant([[NAN], []])) == [[3.0], []]


def test_a_logarithm_does_not_depend_on_the_batch():
    numbers = np.random.default_rng(3).uniform(0, 1000, 4096).astype(np.float32)
    layer = Log()
    batch = layer(tf.constant(numbers)).numpy()
    alone = [layer(tf.constant([each])).numpy()[0] for each in numbers[:200]]
    assert batch[:200].tolist() == [float(each) for each in alone]
    assert batch.tolist() == [float(reference.logarithm(each)) for each in numbers]


def test_layers_apply_to_each_value_of_a_list():
    column = Column("prices", "number", length=None)
    values = tf.ragged.constant([[1.0, 2.0], [], [NAN]])
    single = of_column(PRICE, Log(), normalization(), values=values.flat_values)
    lists = of_column(column, Log(), normalization(), values=values)
    np.testing.assert_array_equal(np.ravel(single), [*lists[0], *lists[1], *lists[2]])


def test_lists_of_one_length_are_normalized_by_position():
    column = Column("vector", "number", length=2)
    layer = keras.layers.Normalization(mean=[0.0, 1.0], variance=[1.0, 4.0])
    assert of_column(column, layer, values=tf.constant([[3.0, 5.0]])) == [[3.0, 2.0]]


def test_texts_are_split_and_lists_are_cut():
    values = tf.constant([["a|b|c"], [""], ["|"]])
    a, b, c, empty = (reference.text_key(each) for each in (b"a", b"b", b"c", b""))
    assert of_column(TAGS, SplitText(), values=values) == [[a, b, c], [], [empty, empty]]
    cut = of_column(TAGS, SplitText(), Truncate(2, "last"), values=values)
    assert cut == [[b, c], [], [empty, empty]]
    fixed = Column("history", length=3)
    assert of_column(fixed, Truncate(2), values=tf.constant([[1, 2, 3]])) == [[1, 2]]
    for lists in (tf.ragged.constant([[a, b], []], tf.int64), tf.ragged.constant([["a", "b"], []])):
        assert of_column(TAGS, SplitText(), values=lists) == [[a, b], []]


def test_crosses_are_those_of_keras_and_take_lists():
    user, item = Column("user"), Column("item")
    keys = {
        "user": tf.constant([[each] for each in INT64], tf.int64),
        "item": tf.constant([[each] for each in INT64[::-1]], tf.int64),
    }
    features = Features({"user": user, "item": item, "both": Cross(["user", "item"], 1000)})
    both = features(keys)["both"]
    of_keras = keras.layers.HashedCrossing(1000)([keys["user"], keys["item"]])
    np.testing.assert_array_equal(both, of_keras)
    lists = {"user": keys["user"][:3], "item": tf.ragged.constant([[1, 2], [], [-3]], tf.int64)}
    item = Column("item", length=None)
    features = Features({"item": item, "user": user, "both": Cross(["item", "user"])})
    expected = [
        reference.crossed([[1, 2], [INT64[0]]]),
        [],
        reference.crossed([[-3], [INT64[2]]]),
    ]
    assert features(lists)["both"].to_list() == expected


def test_a_cross_of_lists_of_fixed_lengths_is_dense():
    a, b = Column("a", length=2), Column("b", length=3)
    features = Features({"a": a, "b": b, "both": Cross(["a", "b"])})
    values = {"a": tf.constant([[1, 2]], tf.int64), "b": tf.constant([[3, 4, 5]], tf.int64)}
    both = features(values)["both"]
    assert both.numpy().tolist() == [reference.crossed([[1, 2], [3, 4, 5]])]
    assert features({name: each[:0] for name, each in values.items()})["both"].shape == (0, 6)


def test_a_graph_a_data_set_and_a_model_compute_the_same_bits():
    features = everything()
    expected = listed(features(COLUMNS))
    rows = tf.data.Dataset.from_tensor_slices(COLUMNS)
    assert listed(next(iter(rows.batch(3).map(features)))) == expected
    inputs = features.inputs()
    assert listed(keras.Model(inputs, features(inputs))(COLUMNS)) == expected
    one_by_one = [listed(each) for each in rows.batch(1).map(features)]
    bits = {name: b"".join(row[name][1] for row in one_by_one) for name in expected}
    assert bits == {name: each[1] for name, each in expected.items()}


def test_symbolic_features_have_the_types_of_real_ones():
    features = everything()
    symbolic, real = features(features.inputs()), features(COLUMNS)
    for name, each in real.items():
        ragged = isinstance(each, tf.RaggedTensor)
        assert (symbolic[name].dtype, symbolic[name].ragged) == (each.dtype.name, ragged)
        assert symbolic[name].shape == (None, *each.shape[1:])


def test_a_description_goes_through_json():
    features = everything(outputs=["price", "user_range"])
    config = json.loads(json.dumps(keras.utils.serialize_keras_object(features)))
    copy = keras.utils.deserialize_keras_object(config)
    assert listed(copy(COLUMNS)) == listed(features(COLUMNS))
    assert list(copy(COLUMNS)) == ["price", "user_range"]
    assert str(copy.columns) == str(features.columns)  # as texts, in which NaN equals NaN


def test_keys_of_a_reader_give_the_features_of_texts(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("label,user,city,price,genres\n1,1,a,5,a|b|c\n0,-2,,1e9,\n")
    genres, city = Column("genres", "string", length=None), Column("city", "string")
    features = Features(
        {
            "city": city,
            "genres": [genres, Truncate(2)],
            "range": [PRICE, Buckets(BOUNDARIES)],
            "city_genres": Cross(["city", "genres"]),
        }
    )
    clicks = tfhybrid.data.Csv(**features.columns).read(path)
    batches = tfhybrid.data.Batches(clicks, 2, seed=0, shuffle=False)
    (batch,) = batches.dataset().map(lambda columns, label: features(columns))
    columns = {
        "city": tf.constant(["a", ""]),
        "price": tf.constant([5.0, 1e9]),
        "genres": tf.ragged.constant([["a", "b", "c"], []]),
    }
    assert listed(batch) == listed(features(columns))


def test_readers_that_hash_are_named_where_texts_are_needed():
    features = Features({"city": [Column("city", "string"), keras.layers.Hashing(10)]})
    with pytest.raises(ConfigError, match="'city': Its layers need texts, and readers"):
        features({"city": tf.constant([[7]], tf.int64)})


def test_a_trained_model_is_served_with_raw_columns(job, tmp_path):
    features = Features(
        {
            "city": Column("city", "string"),
            "price": [PRICE, Default(1.0), Log(), normalization()],
            "range": [PRICE, Buckets(BOUNDARIES)],
            "city_range": Cross(["city", "range"]),
        }
    )
    inputs = {
        "price": keras.Input((1,), name="price"),
        "city": keras.Input((1,), dtype="int64", name="city"),
        "city_range": keras.Input((1,), dtype="int64", name="city_range"),
    }
    table = tfhybrid.TableConfig(dim=2)
    rows = tfhybrid.layers.EmbeddingCollection({"city": table, "city_range": table})(
        {name: inputs[name] for name in ("city", "city_range")}
    )
    parts = [keras.layers.Flatten()(each) for each in rows.values()]
    logit = keras.layers.Dense(1)(keras.layers.Concatenate()([*parts, inputs["price"]]))
    body = keras.Model(inputs, logit)
    trained = features.in_front_of(body, hashed=True)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1))
    trained.compile(optimizer=optimizer, loss="mse")
    texts = {name: COLUMNS[name] for name in ("city", "price")}
    hashed = {**texts, "city": tfhybrid.data.string_keys(texts["city"])}
    labels = tf.constant([[1.0], [0.0], [1.0]])
    trained.fit(tf.data.Dataset.from_tensors((hashed, labels)), verbose=0)

    folder = tfhybrid.export.saved_model(features.in_front_of(body), tmp_path)

    served = tf.saved_model.load(str(folder)).signatures["serving_default"](**texts)
    np.testing.assert_array_equal(served["output_0"], trained(hashed, training=False))


WRONG = {
    "no features": (lambda: Features({}), "dictionary of features"),
    "no column": (lambda: Features({"a": ["a"]}), "'a' must be a Column"),
    "no layer": (lambda: Features({"a": [Column("a"), 3]}), "then layers. Received: 3"),
    "a label": (lambda: Features({"a": Column("a", "label")}), "role must be"),
    "whole numbers": (
        lambda: Features({"a": Column("a", "number", dtype="int32")}),
        "dtype of floats",
    ),
    "a missing key for empty texts": (
        lambda: Features({"a": Column("a", "string", missing=-1, empty="missing")}),
        "missing must be a text",
    ),
    "buckets of a logarithm": (
        lambda: Features({"a": [PRICE, Log(), Buckets([1])]}),
        r"Buckets are cut on the numbers of the data.*\['log",
    ),
    "buckets of Keras": (
        lambda: Features({"a": [PRICE, keras.layers.Discretization([1.0])]}),
        "Use tfhybrid.features.Buckets",
    ),
    "adapt": (
        lambda: Features({"a": [PRICE, keras.layers.Normalization()]}),
        "needs mean=, a constant",
    ),
    "16 bits": (
        lambda: Features({"a": [PRICE, normalization(dtype="bfloat16")]}),
        "dtype='float32'. Received: bfloat16",
    ),
    "a logarithm of keys": (
        lambda: Features({"a": [Column("a"), Log()]}),
        "Feature 'a' of column 'a': The layer 'log.*cannot take int64",
    ),
    "a split text that is no list": (
        lambda: Features({"a": [Column("a", "string"), SplitText()]}),
        "strings with length=None",
    ),
    "texts that are split once": (
        lambda: Features({"a": [TAGS, SplitText()], "b": TAGS}),
        "SplitText in all or none",
    ),
    "two descriptions of a column": (
        lambda: Features({"a": Column("a"), "b": Column("a", missing=1)}),
        "one description",
    ),
    "a cross of numbers": (
        lambda: Features({"a": Column("a"), "p": PRICE, "c": Cross(["a", "p"])}),
        r"'c': a Cross takes features of keys, and.*Received: \['p'\]",
    ),
    "other outputs": (lambda: Features({"a": Column("a")}, outputs=["b"]), r"names of \['a'\]"),
    "a cross of one": (lambda: Cross(["a"]), "at least two"),
    "descending boundaries": (lambda: Buckets([2, 1]), "each above the one before"),
    "a boundary that is NaN": (lambda: Buckets([NAN]), "finite number"),
    "an empty range": (lambda: Clip(2, 1), "must not be above high"),
    "no separator": (lambda: SplitText(""), "not empty"),
    "no length": (lambda: Truncate(0), "at least 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_description_is_refused(case):
    wrong, message = WRONG[case]
    with pytest.raises(ConfigError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"need the columns \['price', 'user'\].*none of \['price', 'user'\]"),
        ({"user": [1.5], "price": [1.0]}, "Expected int32 or int64. Received: float32"),
        ({"user": [1], "price": ["x"]}, "Expected numbers. Received: string"),
        ({"user": tf.sparse.eye(1), "price": [1.0]}, "Received: a SparseTensor"),
    ],
)
def test_other_columns_are_refused(values, message):
    features = Features({"user": Column("user"), "price": PRICE})
    values = {
        name: each if isinstance(each, tf.SparseTensor) else tf.constant(each)
        for name, each in values.items()
    }
    with pytest.raises(ConfigError, match=message):
        features(values)


def test_a_model_of_other_inputs_is_refused():
    features = Features({"user": Column("user")})
    item = keras.Input((1,), name="item")
    with pytest.raises(ConfigError, match=r"names of \['user'\].*Received: \['item'\]"):
        features.in_front_of(keras.Model({"item": item}, item))


def test_a_model_of_what_readers_yield_is_made_without_a_warning():
    key = keras.Input((None,), dtype="int64", ragged=True, name="key")
    body = keras.Model({"key": key}, keras.layers.Identity()(key))
    described = Features(
        {"tag": [TAGS, SplitText()], "user": Column("user"), "key": Cross(["tag", "user"])}
    )
    with no_warnings():
        described.in_front_of(body, hashed=True)
