"""Keras models trained online: over a real provider and sync unit, on threads of this process."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference.asynchronous import read_journal, replayed
from tests.support.stream.online_site import TABLES, Site, small_model
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.errors import CheckpointError, ConfigError, DataError, UnsupportedError
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.optimizers.dense_states import dense_states
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.trainer.online import dense_variables
from tfhybrid.stream.weights.model_spec import (
    DENSE_TABLE,
    ModelSpec,
    TableSpec,
    dense_weights,
)

ROWS = 300


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path, job: None) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    yield site
    site.close()


def _batches(site: Site):
    """The rows of the queue in batches, for training without a stream."""
    queue = QueueReader(site.queue("video"), site.settings.row_columns, None)
    begin = QueuePosition(0, 0)
    batches = []
    while (taken := queue.take(begin, 16)) is not None:
        begin = taken.end
        history = taken.batch["history"]
        features = {
            "item": tf.constant(taken.batch["item"].to_numpy()),
            "history": tf.RaggedTensor.from_row_lengths(
                history.flatten().to_numpy(), history.value_lengths().to_numpy().astype("int64")
            ),
        }
        batches.append((features, tf.constant(taken.batch["label"].to_numpy())))
    signature = tf.nest.map_structure(_any_length, batches[0], expand_composites=False)
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)


def _any_length(tensor) -> tf.TypeSpec:
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, None], tensor.dtype, 1)
    return tf.TensorSpec([None], tensor.dtype)


def _train(site: Site, optimizer: keras.optimizers.Optimizer | None = None, **choices):
    leases = tfhybrid.stream.Leases(
        site.config, **{"model": "ads", "batch_size": 16, "wait": False, **choices}
    )
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    model = small_model(optimizer)
    history = model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)
    return leases, model, history


def test_fit_trains_each_row_once_and_equals_the_replay(site: Site):
    site.put(ROWS)
    _, model, _ = _train(site)
    replay, updates = replayed(site.journal)
    assert [update.rows for update in updates] == [64, 64, 64, 64, 44]
    unit = site.unit.models["ads"]
    keys = {"items": np.arange(60), "histories": np.arange(40)}
    keys[DENSE_TABLE] = updates[0].keys[DENSE_TABLE]
    rows, version = unit.read(keys)
    assert version == len(updates)
    for name in keys:
        np.testing.assert_array_equal(rows[name], replay.lookup(name, keys[name]), err_msg=name)
    # The trainer's weights are those, but for the rounding of a sum of differences.
    dense = dense_weights(rows[DENSE_TABLE], replay.spec.dense)
    for variable, value in zip(model.trainable_variables[-2:], dense[-2:], strict=False):
        np.testing.assert_allclose(np.asarray(variable), value, rtol=1e-5, atol=1e-6)
    assert unit.standing()["video"][1] == 0


def test_training_resumes_where_it_ended(site: Site):
    site.put(100)
    _train(site)
    tfhybrid.shutdown()
    tfhybrid.init()  # another trainer, with fresh tables
    site.put(100, seed=1)
    _train(site)
    replay, updates = replayed(site.journal)
    assert sum(update.rows for update in updates) == 200
    # The second one began from the weights that the first one left, not from its own.
    assert updates[2].version == 2
    first = np.abs(updates[2].values["items"]).max()
    assert first < 0.2
    rows, _ = site.unit.models["ads"].read({"items": np.arange(60)})
    np.testing.assert_array_equal(rows["items"], replay.lookup("items", np.arange(60)))


# Keras rounds the steps of Adam otherwise than the engine, and dense weights are Keras's there.
@pytest.mark.parametrize(
    ("dense", "error"), [(keras.optimizers.SGD, 0), (keras.optimizers.Adam, 1e-5)]
)
def test_gradients_of_one_trainer_are_synchronous_training(site: Site, dense: type, error: float):
    """The sync unit's optimizers do what the trainer's own would: to the bit with SGD."""
    site.put(ROWS)
    keras.utils.set_random_seed(5)
    leases, _, _ = _train(site, dense(0.1), push="gradients")
    _, _, updates = read_journal(site.journal)
    assert [update.rows for update in updates] == [16] * 18 + [12]
    assert leases.refused == 0
    tfhybrid.shutdown()
    tfhybrid.init()
    keras.utils.set_random_seed(5)
    model = small_model(dense(0.1))
    model.fit(_batches(site), verbose=0)
    keys = {"items": np.arange(60), "histories": np.arange(40)}
    unit = site.unit.models["ads"]
    rows, version = unit.read({**keys, DENSE_TABLE: updates[0].keys[DENSE_TABLE]})
    assert version == int(model.optimizer.iterations) == 19
    for name, table in tables_of(model).items():
        there = table.lookup(keys[name])
        np.testing.assert_allclose(rows[name], there, rtol=0, atol=error, err_msg=name)
    found = dense_weights(rows[DENSE_TABLE], read_journal(site.journal)[0].dense)
    synchronous = [v for v in model.trainable_variables if not isinstance(v, TableProxy)]
    for variable, value in zip(synchronous, found, strict=True):
        np.testing.assert_allclose(np.asarray(variable), value, rtol=0, atol=error)


def test_gradients_of_a_key_are_summed_over_two_lookups(site: Site):
    site.put(ROWS)

    def model_of_two_lookups() -> keras.Model:
        keras.utils.set_random_seed(5)
        config = tfhybrid.TableConfig(dim=4, optimizer=tfhybrid.optimizers.SGD(0.1))
        item = keras.Input((), dtype="int64", name="item")
        embedding = tfhybrid.layers.Embedding(config, table="items", name="of_item")
        embedded = keras.layers.Concatenate()([embedding(item), embedding(item)])
        model = keras.Model({"item": item}, keras.layers.Dense(1)(embedded))
        optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1))
        model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
        return model

    leases = tfhybrid.stream.Leases(
        site.config, model="ads", batch_size=16, wait=False, push="gradients"
    )
    data = tfhybrid.stream.dataset(leases, features=["item"], label="label")
    online = tfhybrid.stream.Online(leases, tables={"items": "item"})
    model_of_two_lookups().fit(data, callbacks=[online], verbose=0)
    tfhybrid.shutdown()
    tfhybrid.init()
    model = model_of_two_lookups()
    batches = _batches(site).map(lambda features, label: ({"item": features["item"]}, label))
    model.fit(batches, verbose=0)
    keys = np.arange(60)
    rows, _ = site.unit.models["ads"].read({"items": keys})
    np.testing.assert_array_equal(rows["items"], tables_of(model)["items"].lookup(keys))


def din() -> keras.Model:
    """Returns a model whose two features share the table "item"."""
    keras.utils.set_random_seed(5)
    model = tfhybrid.models.din(
        ["item"],
        behaviours={"history": "item"},
        table=tfhybrid.TableConfig(dim=4, optimizer=tfhybrid.optimizers.SGD(0.1)),
        hidden=(4,),
    )
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize(("push", "error"), [("gradients", 0), ("deltas", 1e-6)])
def test_two_features_share_a_table(site: Site, caplog, push: str, error: float):
    site.put(ROWS)
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False, push=push)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    online = tfhybrid.stream.Online(leases, tables={"item": ["item", "history"]})
    din().fit(data, callbacks=[online], verbose=0)
    assert "that are not in its columns" not in caplog.text
    tfhybrid.shutdown()
    tfhybrid.init()
    model = din()
    model.fit(_batches(site), verbose=0)
    keys = np.arange(50)
    rows, _ = site.unit.models["ads"].read({"item": keys})
    there = tables_of(model)["item"].lookup(keys)
    np.testing.assert_allclose(rows["item"], there, rtol=0, atol=error)


def test_statistics_come_along_with_gradients(site: Site):
    site.put(64)
    leases = tfhybrid.stream.Leases(
        site.config, model="ads", batch_size=16, wait=False, push="gradients", direct=True
    )
    config = tfhybrid.TableConfig(dim=4)
    item = keras.Input((), dtype="int64", name="item")
    embedded = tfhybrid.layers.Embedding(config, table="items", name="of_item")(item)
    frozen = tfhybrid.layers.Embedding(config, table="frozen", name="frozen", trainable=False)(item)
    embedded = keras.layers.Add()([embedded, frozen])
    counted = keras.layers.BatchNormalization(momentum=0.5)(embedded)
    logit = keras.layers.Dense(1)(keras.layers.Dropout(0.1)(counted))
    model = keras.Model({"item": item}, logit)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    data = tfhybrid.stream.dataset(leases, features=["item"], label="label")
    online = tfhybrid.stream.Online(leases, tables={"items": "item", "frozen": "item"})
    model.fit(data, callbacks=[online], verbose=0)
    spec, _, _ = read_journal(site.journal)
    assert (len(spec.dense), spec.statistics) == (4, ((4,), (4,)))
    rows, _ = site.unit.models["ads"].read(spec.keys_of_weights())
    found = spec.weights_of(rows)[4:]
    for variable, value in zip(dense_variables(model)[1], found, strict=True):
        np.testing.assert_allclose(np.asarray(variable), value, rtol=1e-5)
        assert np.abs(value - (np.asarray(variable).shape == ())).max() > 0
    # Trained without the stream, the model changes its own weights again.
    before = np.asarray(model.trainable_variables[-1]).copy()
    model.fit({"item": np.arange(8)}, np.ones(8), verbose=0)
    assert np.abs(np.asarray(model.trainable_variables[-1]) - before).max() > 0


@pytest.mark.parametrize("push", ["deltas", "gradients"])
def test_a_model_with_a_scalar_weight_is_trained(site: Site, push: str):
    site.put(64)
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False, push=push)
    item = keras.Input((), dtype="int64", name="item")
    config = tfhybrid.TableConfig(dim=4)
    embedded = tfhybrid.layers.Embedding(config, table="items", name="of_item")(item)
    scale = keras.layers.Normalization()
    scale.adapt(np.random.default_rng(1).normal(size=(50, 4)))
    model = keras.Model({"item": item}, keras.layers.Dense(1)(scale(embedded)))
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    data = tfhybrid.stream.dataset(leases, features=["item"], label="label")
    dense = [each for each in model.weights if not isinstance(each, TableProxy)]
    before = [np.asarray(each).copy() for each in dense]
    online = tfhybrid.stream.Online(leases, tables={"items": "item"})
    history = model.fit(data, callbacks=[online], verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    spec, _, _ = read_journal(site.journal)
    assert () in spec.shapes
    assert any(np.any(np.asarray(now) != old) for now, old in zip(dense, before, strict=True))


def test_what_the_sync_unit_does_not_do_is_refused(site: Site):
    site.put(10)
    with pytest.raises(ConfigError, match=r"push must be one of .*Received: 'weights'"):
        tfhybrid.stream.Leases(site.config, model="ads", batch_size=4, push="weights")
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=4, push="gradients")
    model = small_model()
    clipped = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1, clipvalue=1.0))
    model.compile(clipped, "mse")
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    with pytest.raises(UnsupportedError, match="Received: clipping"):
        model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)


def test_a_gradient_that_is_not_finite(site: Site):
    site.put(32)
    leases = tfhybrid.stream.Leases(
        site.config, model="ads", batch_size=16, wait=False, push="gradients"
    )
    model = small_model()
    model.compile(model.optimizer, lambda truth, logit: logit / 0.0)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    with pytest.raises(DataError, match=r"The gradient of .* is not finite"):
        model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)
    leases.leave()
    tfhybrid.shutdown()
    tfhybrid.init()
    model = small_model()
    skips = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1), on_nonfinite="skip")
    model.compile(skips, lambda truth, logit: logit / 0.0)
    leases = tfhybrid.stream.Leases(
        site.config, model="ads", batch_size=16, wait=False, push="gradients"
    )
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)
    _, updates = replayed(site.journal)
    assert [(update.rows, len(update.keys["items"])) for update in updates] == [(16, 0)] * 2


GOOD = {"item": 7, "history": [1, 2], "medium": "video", "label": 1.0}
BAD = [
    {"history": [1, None]},
    {"history": None},
    {"history": [True]},
    {"label": float("nan")},
    {"label": float("-inf")},
    {"label": 1e39},
    {"label": None},
    {"item": True},
    {"item": 7.5},
    {"item": 2.0**53},
    {"item": 2**63},
]


@pytest.mark.parametrize("push", ["deltas", "gradients"])
def test_a_bad_row_costs_one_row_and_no_trainer(site: Site, push: str):
    found = [row for bad in BAD for row in (GOOD, {**GOOD, **bad}, {**GOOD, "item": 7.0})]
    assert site.provider.put("web", 0, Record(json.dumps(found).encode())) == 2 * len(BAD)
    prices = pa.array([1.0] * 20 + [2.0**53, 7.5], pa.float64())
    batch = pa.RecordBatch.from_pylist([GOOD] * 22).set_column(0, "item", prices)
    assert site.provider.put("web", 1, rows.encode(batch)) == 20
    _train(site, push=push)
    _, _, updates = read_journal(site.journal)
    assert sum(update.rows for update in updates) == 2 * len(BAD) + 20
    letters = (Path(site.settings.folder) / "bad-rows.jsonl").read_text().splitlines()
    told = [(letter["offset"], letter["row"]) for letter in map(json.loads, letters)]
    assert told == [*((0, 3 * number + 1) for number in range(len(BAD))), (1, 20), (1, 21)]


def test_a_list_that_may_be_missing_is_an_empty_bag_and_other_values_must_be_there(
    tmp_path: Path, shm_directory: Path, job: None
):
    columns = {"item": "int64", "history": "list<int64>?", "medium": "string", "label": "float32"}
    columns |= {"price": "float32?", "age": {"type": "int64", "missing": 0}}
    site = Site(tmp_path, shm_directory, columns=columns)
    found = [GOOD, {**GOOD, "history": None}, {"item": 1, "medium": "video", "label": 0}]
    assert site.provider.put("web", 0, Record(json.dumps(found).encode())) == 3
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=4, wait=False)
    with pytest.raises(ConfigError, match=r"'price' must have a value.*float, without \?"):
        tfhybrid.stream.dataset(leases, features=["item", "price"], label="label")
    for features, _ in tfhybrid.stream.dataset(leases, features=["history", "age"], label="label"):
        assert features["history"].to_list() == [[1, 2], [], []]
        assert features["age"].numpy().tolist() == [0, 0, 0]
        break
    leases.leave()
    _train(site)
    _, _, updates = read_journal(site.journal)
    assert sum(update.rows for update in updates) == 3
    site.close()


def test_what_cannot_be(site: Site):
    site.put(10)
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=4, wait=False)
    with pytest.raises(ConfigError, match=r"must be columns of the stream.*Received: \['price'\]"):
        tfhybrid.stream.dataset(leases, features=["price"], label="label")
    with pytest.raises(ConfigError, match=r"must not be a feature.*Received: label='label'"):
        tfhybrid.stream.dataset(leases, features=["item", "label"], label="label")
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        tfhybrid.stream.Leases(site.config, model="ads", batch_size=0)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    online = tfhybrid.stream.Online(leases, tables={"items": "item"})
    with pytest.raises(ConfigError, match=r"Online needs the column of each table"):
        small_model().fit(data, callbacks=[online], verbose=0)
    for column, message in (
        ("label", r"table 'items' must have integers, strings.*'label' of type float"),
        ("price", r"must be columns of the stream.*Received: \['price'\]"),
        ([], r"'items' needs the name of a column with its keys\. Received: \[\]"),
    ):
        tfhybrid.shutdown()
        tfhybrid.init()
        online = tfhybrid.stream.Online(leases, tables={**TABLES, "items": column})
        with pytest.raises(ConfigError, match=message):
            small_model().fit(data, callbacks=[online], verbose=0)


OPTIMIZERS = {
    "sgd": (lambda: keras.optimizers.SGD(0.1), 0),
    "momentum": (lambda: keras.optimizers.SGD(0.1, momentum=0.9), 0),
    "adam": (lambda: keras.optimizers.Adam(0.1, amsgrad=True), 1e-5),
    "adagrad": (lambda: keras.optimizers.Adagrad(0.1, epsilon=0.0), 1e-5),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_from_batches_to_the_stream_and_back(site: Site, tmp_path: Path, name: str):
    """Batches, a checkpoint, the stream, a checkpoint, batches: what batches alone come to."""
    optimizer, error = OPTIMIZERS[name]
    site.put(96)
    batches = _batches(site)
    keras.utils.set_random_seed(5)
    model = small_model(optimizer())
    model.fit(batches, verbose=0)
    tfhybrid.checkpoint.save(model, tmp_path / "before", tfhybrid.data.Position(0, 6))
    model.fit(batches.concatenate(batches), verbose=0)
    wanted = {name: table.lookup(np.arange(60)) for name, table in tables_of(model).items()}
    wanted_dense = [np.asarray(each) for each in dense_variables(model)[0]]
    wanted_states = [np.asarray(each) for each in itertools.chain(*dense_states(model.optimizer))]

    tfhybrid.shutdown()
    tfhybrid.init()  # a trainer of the stream
    choices = {"model": "ads", "batch_size": 16, "wait": False, "push": "gradients"}
    leases = tfhybrid.stream.Leases(site.config, **choices)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    online = tfhybrid.stream.Online(leases, tables=TABLES, checkpoint=tmp_path / "before")
    small_model(optimizer()).fit(data, callbacks=[online], verbose=0)
    assert site.unit.models["ads"].version == 12

    tfhybrid.shutdown()
    tfhybrid.init()  # what takes the weights from the stream
    model = small_model(optimizer())
    assert tfhybrid.stream.fetch(model, site.config, target="ads") == 12
    tfhybrid.checkpoint.save(model, tmp_path / "after", tfhybrid.data.Position(1, 0))

    tfhybrid.shutdown()
    tfhybrid.init()  # and batches again
    model = small_model(optimizer())
    position = tfhybrid.checkpoint.restore(model, tmp_path / "after")
    assert (position, int(model.optimizer.iterations)) == (tfhybrid.data.Position(1, 0), 12)
    model.fit(batches, verbose=0)
    for name, table in tables_of(model).items():
        found = table.lookup(np.arange(60))
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=error, err_msg=name)
    states = itertools.chain(*dense_states(model.optimizer))
    found = [*dense_variables(model)[0], *states]
    for variable, value in zip(found, [*wanted_dense, *wanted_states], strict=True):
        np.testing.assert_allclose(np.asarray(variable), value, rtol=0, atol=error)


def test_a_checkpoint_that_does_not_fit(site: Site, tmp_path: Path):
    site.put(16)
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    model = small_model()
    online = tfhybrid.stream.Online(leases, tables=TABLES, checkpoint=tmp_path / "none")
    with pytest.raises(CheckpointError, match="which has none"):
        model.fit(data, callbacks=[online], verbose=0)
    tfhybrid.checkpoint.save(model, tmp_path / "saved", tfhybrid.data.Position(0, 0))
    spec = ModelSpec({"items": TableSpec(4)})
    with pytest.raises(CheckpointError, match=r"Received: a model with \['items'\]"):
        site.unit.models["ads"].open(spec, [], (str(tmp_path / "saved"), 0))
    assert site.unit.models["ads"].version == 0
