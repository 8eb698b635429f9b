"""An exported model against `model.predict`, and what is inside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tests.support.serving.predictions import assert_predicted
from tfhybrid import export
from tfhybrid.errors import ConfigError, ExportError
from tfhybrid.models import dcn, dcnv2, deepfm, dlrm, fm, xdeepfm

pytestmark = pytest.mark.usefixtures("job")

FEATURES = ("user", "item", "hour")
TABLE = tfhybrid.TableConfig(dim=4, initializer=tfhybrid.initializers.Uniform(-0.5, 0.5))
INITIAL = dataclasses.replace(TABLE, unseen="initial")
INT64 = np.iinfo(np.int64)
EXTREMES = np.array([0, -1, INT64.min, INT64.max])


def keys_of(samples: int, seed: int = 0, vocabulary: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-vocabulary, vocabulary, (samples, 1)) for name in FEATURES}


def trained(model: keras.Model, keys: Mapping[str, np.ndarray]) -> keras.Model:
    """A model after a few steps, which made rows for the keys."""
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.05)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    samples = len(next(iter(keys.values())))
    labels = np.random.default_rng(9).integers(0, 2, samples).astype(np.float32)
    model.fit(keys, labels, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return model


def decayed_model() -> keras.Model:
    """A model whose embeddings, those of unseen keys too, have lost half of themselves."""
    model = deepfm(FEATURES, table=INITIAL, hidden=(8,))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.AdamW(0.01, 10.0)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    model.fit(keys_of(128), np.ones(128, np.float32), batch_size=16, verbose=0)
    return model


def serve(folder: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    outputs = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: output.numpy() for name, output in outputs.items()}


def assert_same(folder: Path, model: keras.Model, inputs: Mapping[str, np.ndarray]) -> None:
    served = serve(folder, inputs)["output_0"]
    assert_predicted(served, model.predict(inputs, verbose=0))


BUILDERS: dict[str, Callable[[], keras.Model]] = {
    "initial values": lambda: deepfm(FEATURES, table=INITIAL, hidden=(16,)),
    "deepfm": lambda: deepfm(FEATURES, table=TABLE, hidden=(16, 8), dropout=0.3, batch_norm=True),
    "dcnv2": lambda: dcnv2(FEATURES, table=TABLE, crosses=2, hidden=(16,)),
    "dcn": lambda: dcn(FEATURES, table=TABLE, crosses=2, hidden=(16,)),
    "dlrm": lambda: dlrm(FEATURES, table=TABLE, hidden=(16,)),
    "fm": lambda: fm(FEATURES, table=TABLE),
    "xdeepfm": lambda: xdeepfm(FEATURES, table=TABLE, interactions=(4,), hidden=(16,)),
}


@pytest.mark.parametrize("build", BUILDERS)
def test_predictions_are_those_of_the_model(build, tmp_path) -> None:
    model = trained(BUILDERS[build](), keys_of(64))
    folder = export.saved_model(model, tmp_path / "model")
    assert folder == tmp_path / "model" / "1"
    assert_same(folder, model, keys_of(64))
    half_unseen = keys_of(33, seed=1, vocabulary=100)
    assert_same(folder, model, half_unseen)
    assert_same(folder, model, dict.fromkeys(FEATURES, EXTREMES[:, np.newaxis]))
    assert_same(folder, model, keys_of(1))


def test_training_goes_on_after_an_export(tmp_path) -> None:
    model = trained(BUILDERS["deepfm"](), keys_of(64))
    before = model.predict(keys_of(64), verbose=0)
    first = export.saved_model(model, tmp_path)
    trained(model, keys_of(64))
    second = export.saved_model(model, tmp_path)
    assert [first.name, second.name] == ["1", "2"]
    assert_predicted(serve(first, keys_of(64))["output_0"], before)
    assert_same(second, model, keys_of(64))


def test_extreme_keys_are_trained_and_served(tmp_path) -> None:
    extremes = {name: np.repeat(EXTREMES, 4)[:, np.newaxis] for name in FEATURES}
    model = trained(BUILDERS["deepfm"](), extremes)
    assert_same(export.saved_model(model, tmp_path), model, extremes)


class RowSum(keras.layers.Layer):
    def call(self, inputs):
        return tf.reduce_sum(inputs, axis=1, keepdims=True)


def test_unseen_keys_read_zeros_on_request(tmp_path) -> None:
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in FEATURES}
    layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(FEATURES, INITIAL), concatenate=True)
    model = trained(keras.Model(inputs, RowSum()(layer(inputs))), keys_of(64))
    unseen = {name: np.full((2, 1), 10_000) for name in FEATURES}
    assert_same(export.saved_model(model, tmp_path), model, unseen)
    zeros = export.saved_model(model, tmp_path, unseen="zeros")
    assert not serve(zeros, unseen)["output_0"].any()
    assert_same(zeros, model, keys_of(64))


def test_a_model_that_was_never_trained_has_empty_tables(tmp_path) -> None:
    model = BUILDERS["dcnv2"]()
    assert_same(export.saved_model(model, tmp_path), model, keys_of(8))


def sequences(samples: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {f: rng.integers(-9, 9, (samples, n)) for f, n in click_model.LENGTHS.items()}


@pytest.mark.parametrize("concatenate", [False, True])
def test_sequences_shared_tables_and_a_layer_called_twice(concatenate, tmp_path) -> None:
    if concatenate:
        inputs = {
            f: keras.Input((n,), dtype="int64", name=f) for f, n in click_model.LENGTHS.items()
        }
        layer = tfhybrid.layers.EmbeddingCollection(
            dict.fromkeys(("user", "item"), TABLE),
            shared={"item": ["clicked", "carted"]},
            concatenate=True,
            prefix="p_",
        )
        model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    else:
        model = click_model.keras_model()
    trained(model, sequences(32))
    folder = export.saved_model(model, tmp_path)
    assert_same(folder, model, sequences(32))
    tables = tf.saved_model.load(str(folder)).tables
    assert len(tables) == 2


def test_a_length_that_is_known_only_when_served(tmp_path) -> None:
    keys = keras.Input((None,), dtype="int64", name="history")
    rows = tfhybrid.layers.Embedding(TABLE, name="history_table")(keys)
    model = trained(
        keras.Model(keys, keras.layers.Dense(1)(keras.layers.Flatten()(RowSum()(rows)))),
        {"history": np.random.default_rng(0).integers(0, 9, (16, 3))},
    )
    folder = export.saved_model(model, tmp_path)
    for length in (1, 5):
        inputs = np.arange(2 * length).reshape(2, length)
        served = serve(folder, {"history": inputs})["output_0"]
        assert_predicted(served, model.predict(inputs, verbose=0))


def test_an_output_that_is_a_dict_keeps_its_names(tmp_path) -> None:
    keys = keras.Input((1,), dtype="int64", name="user")
    rows = keras.layers.Flatten()(tfhybrid.layers.Embedding(TABLE, name="user_table")(keys))
    outputs = {"click": keras.layers.Dense(1)(rows), "order": keras.layers.Dense(1)(rows)}
    folder = export.saved_model(keras.Model({"user": keys}, outputs), tmp_path)
    assert set(serve(folder, {"user": np.array([[1]])})) == {"click", "order"}


def test_inputs_in_a_list_are_served_by_name(tmp_path) -> None:
    keys = keras.Input((1,), dtype="int64", name="user")
    price = keras.Input((1,), name="price")
    rows = keras.layers.Flatten()(tfhybrid.layers.Embedding(TABLE, name="user_table")(keys))
    both = keras.layers.Concatenate()([rows, price])
    model = keras.Model([price, keys], keras.layers.Dense(1)(both))
    inputs = {"user": np.array([[3], [4]]), "price": np.array([[0.5], [2.0]], np.float32)}
    served = serve(export.saved_model(model, tmp_path), inputs)["output_0"]
    expected = model.predict([inputs["price"], inputs["user"]], verbose=0)
    assert_predicted(served, expected)


class TwoTowers(keras.Model):
    """A subclassed model, which decides in Python what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(("user", "item"), TABLE))
        self.normalize = keras.layers.BatchNormalization()

    def build(self, input_shape):
        self.rows.build()
        self.normalize.build((None, TABLE.dim))
        self.built = True

    def call(self, inputs, training=False):
        rows = self.rows(inputs)
        user, item = (tf.reduce_mean(rows[name], axis=1) for name in ("user", "item"))
        user = self.normalize(user, training=training)
        return tf.reduce_sum(user * item, axis=1, keepdims=True)


def test_a_subclassed_model(tmp_path) -> None:
    keys = {name: keys_of(64)[name] for name in ("user", "item")}
    model = TwoTowers()
    with pytest.raises(ConfigError, match="call 'two_towers' once"):
        export.saved_model(model, tmp_path)
    model(keys)
    trained(model, keys)
    with pytest.raises(ConfigError, match="'two_towers' does not define its inputs"):
        export.saved_model(model, tmp_path)
    inputs = {name: tf.TensorSpec([None, 1], tf.int64) for name in keys}
    folder = export.saved_model(model, tmp_path, inputs=inputs)
    assert_same(folder, model, keys)


def test_a_call_that_was_traced_in_training_is_refused(tmp_path) -> None:
    class Traced(TwoTowers):
        def build(self, input_shape):
            super().build(input_shape)
            self.lookup = tf.function(self.rows)

        def call(self, inputs):
            return self.lookup(inputs)["user"]

    inputs = {name: tf.TensorSpec([None, 1], tf.int64) for name in ("user", "item")}
    model = Traced()
    model.build(None)
    model.lookup.get_concrete_function(inputs)
    with pytest.raises(ExportError, match="TfhybridLookup"):
        export.saved_model(model, tmp_path, inputs=inputs)
    assert list(tmp_path.iterdir()) == []


class Stateful(keras.layers.Layer):
    """A layer with a resource that no SavedModel could bring back."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)

    def call(self, keys):
        return tf.raw_ops.LookupTableFindV2(
            table_handle=self.handle, keys=keys, default_value=tf.constant(0, tf.int64)
        )

    def compute_output_spec(self, keys):
        return keras.KerasTensor(keys.shape, "int64")


def test_a_resource_that_cannot_be_saved_is_refused(tmp_path) -> None:
    keys = keras.Input((1,), dtype="int64", name="user")
    rows = tfhybrid.layers.Embedding(TABLE, name="user_table")(Stateful()(keys))
    with pytest.raises(ExportError, match="untracked"):
        export.saved_model(keras.Model(keys, rows), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_names_become_those_of_a_signature(tmp_path) -> None:
    keys = keras.Input((1,), dtype="int64", name="user-id")
    rows = tfhybrid.layers.Embedding(TABLE, name="user-id-table")(keys)
    folder = export.saved_model(keras.Model({"user-id": keys}, rows), tmp_path)
    assert serve(folder, {"user_id": np.array([[1]])})["output_0"].shape == (1, 1, 4)


def test_layers_with_vocabularies_of_their_own(tmp_path) -> None:
    city = keras.Input((1,), dtype="string", name="city")
    keys = keras.Input((1,), dtype="int64", name="user")
    known = keras.layers.StringLookup(vocabulary=["Oslo", "Rome"], output_mode="one_hot")(city)
    rows = keras.layers.Flatten()(tfhybrid.layers.Embedding(TABLE, name="user_table")(keys))
    inputs = {"city": city, "user": keys}
    both = keras.layers.Concatenate()([rows, known])
    model = keras.Model(inputs, keras.layers.Dense(1)(both))
    folder = export.saved_model(model, tmp_path)
    values = {"city": tf.constant([["Rome"], ["Bonn"]]), "user": tf.constant([[1], [2]], tf.int64)}
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](**values)["output_0"]
    assert_predicted(served, model(values, training=False))


@pytest.fixture
def policy() -> Iterator[None]:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.usefixtures("policy")
def test_mixed_bfloat16_is_served_as_float32(tmp_path) -> None:
    model = trained(BUILDERS["deepfm"](), keys_of(64))
    served = serve(export.saved_model(model, tmp_path), keys_of(64))["output_0"]
    assert served.dtype == np.float32
    expected = model.predict(keys_of(64), verbose=0).astype(np.float32)
    # TensorFlow rounds to bfloat16 in other places where it fuses other operations.
    np.testing.assert_allclose(served, expected, rtol=2**-5, atol=2**-6)


def test_rows_below_a_norm_are_left_out(tmp_path) -> None:
    model = trained(BUILDERS["dcnv2"](), keys_of(64))
    folder = export.saved_model(model, tmp_path, min_norm=1e9, unseen="zeros")
    loaded = tf.saved_model.load(str(folder))
    rows = {name: len(table.keys.numpy()) for name, table in loaded.tables.items()}
    assert rows == dict.fromkeys(FEATURES, 0)


def test_only_small_constants_and_stock_operations_are_inside(tmp_path) -> None:
    user = np.arange(100_000)
    model = BUILDERS["deepfm"]()
    (layer,) = (x for x in model.layers if isinstance(x, tfhybrid.layers.EmbeddingCollection))
    for table in layer.tables.values():
        rows = np.zeros((len(user), table.dim), np.float32)
        table.writer.write_rows(tfhybrid.store.RowBlock(user, rows, None))
    folder = export.saved_model(model, tmp_path)
    assert (folder / "saved_model.pb").stat().st_size < 1 << 20
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    definition = signature.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    assert {"LowerBound"} <= {node.op for node in nodes}
    assert not [node.op for node in nodes if node.op.startswith(("Tfhybrid", "Horovod"))]
    assert max(node.ByteSize() for node in nodes) < 1 << 20
    files = (folder / "variables").iterdir()
    assert sum(file.stat().st_size for file in files) > 3 * 100_000 * 28


@pytest.mark.parametrize(
    "wrong",
    [{"version": -1}, {"version": "3"}, {"unseen": "random"}, {"min_norm": -1}],
    ids=str,
)
def test_arguments_that_cannot_be(wrong, tmp_path) -> None:
    with pytest.raises(ConfigError, match=f"Received: {next(iter(wrong))}="):
        export.saved_model(BUILDERS["dcnv2"](), tmp_path, **wrong)


def test_versions_that_are_asked_for(tmp_path) -> None:
    model = BUILDERS["dcnv2"]()
    assert export.saved_model(model, tmp_path, version=1200).name == "1200"
    assert export.saved_model(model, tmp_path).name == "1201"
    with pytest.raises(ExportError, match="Received: 1200 of"):
        export.saved_model(model, tmp_path, version=1200)


def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="could not be exported"):
        export.saved_model(BUILDERS["dcnv2"](), tmp_path / "file" / "model")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_bags_are_served_as_their_components(kind, combiner, tmp_path) -> None:
    tags = tfhybrid.TableConfig(4, TABLE.initializer, combiner=combiner, max_length=3)
    layer = tfhybrid.layers.EmbeddingCollection({"user": TABLE, "tags": tags})
    inputs = {
        "user": keras.Input((1,), dtype="int64", name="user"),
        "tags": keras.Input((None,), dtype="int64", name="tags", **{kind: True}),
    }
    weights = {"tags": keras.Input((None,), name="tag_weights", **{kind: True})}
    embedded = layer(inputs, weights)
    x = keras.layers.Concatenate()([keras.layers.Flatten()(embedded["user"]), embedded["tags"]])
    model = keras.Model({**inputs, "tag_weights": weights["tags"]}, keras.layers.Dense(1)(x))

    def as_kind(ragged):
        return ragged if kind == "ragged" else ragged.to_sparse()

    bags = tf.ragged.constant([[1, 2, 3, 4], [], [5, 5]], tf.int64)
    of_bags = bags.with_flat_values(tf.constant([0.5, 2.0, 1.0, 3.0, 1.0, 0.1]))
    batch = {"user": np.ones((3, 1), np.int64)}
    batch |= {"tags": as_kind(bags), "tag_weights": as_kind(of_bags)}
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")
    for _ in range(3):
        model.train_on_batch(batch, np.ones((3, 1)))
    request: dict[str, np.ndarray] = {"user": batch["user"]}
    for name in ("tags", "tag_weights"):
        if kind == "ragged":
            request[name] = batch[name].flat_values.numpy()
            request[f"{name}_row_splits"] = batch[name].row_splits.numpy()
        else:
            request[name] = batch[name].values.numpy()
            request[f"{name}_indices"] = batch[name].indices.numpy()
            request[f"{name}_dense_shape"] = batch[name].dense_shape.numpy()
    served = serve(export.saved_model(model, tmp_path / "model"), request)["output_0"]
    wanted = model.predict_on_batch(batch)
    assert_predicted(served, wanted)


def test_unseen_keys_have_decayed_in_the_exported_model_too(tmp_path) -> None:
    model = decayed_model()
    folder = export.saved_model(model, tmp_path)
    assert_same(folder, model, keys_of(64, seed=1, vocabulary=10**6))
    assert_same(folder, model, keys_of(64, seed=2))


def test_clients_send_strings(tmp_path) -> None:
    inputs = {
        "city": keras.Input((1,), dtype="string", name="city"),
        "user": keras.Input((1,), dtype="int64", name="user"),
    }
    keys = {**inputs, "city": tfhybrid.layers.StringKeys()(inputs["city"])}
    layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(inputs, TABLE))
    flat = [keras.layers.Flatten()(embedded) for embedded in layer(keys).values()]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(flat)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")
    cities = np.array([["Ulm"], ["Bonn"], [""], ["Köln"]] * 8, object)
    sample = {"city": tf.constant(cities), "user": tf.range(32, dtype=tf.int64)[:, tf.newaxis]}
    data = tf.data.Dataset.from_tensor_slices((sample, np.ones((32, 1), np.float32))).batch(8)
    model.fit(data, epochs=2, verbose=0)
    folder = export.saved_model(model, tmp_path)
    unseen = {"city": tf.constant([["Ulm"], ["never seen"]]), "user": tf.constant([[3], [99]])}
    unseen["user"] = tf.cast(unseen["user"], tf.int64)
    np.testing.assert_array_equal(serve(folder, unseen)["output_0"], model(unseen, training=False))
