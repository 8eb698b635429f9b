"""Trains one model that gathers on the host and on logical CPU devices, and compares the bits.

Run as a program: TensorFlow divides its CPU into devices before it does anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model

STEPS, SAMPLES = 12, 16
HOST, DEVICE = "host", "device"
NARROWED = [("float32", "bfloat16"), ("bfloat16", "float32")]


def fitted(
    gather_on: Sequence[str],
    device: str,
    announced: dict[str, Any] | None,
    policy: str = "float32",
    **options: Any,
) -> list[np.ndarray]:
    """Returns digests, dense weights, losses and predictions of a model that was trained so."""
    keras.mixed_precision.set_global_policy(policy)
    tfhybrid.init()
    with tf.device(device):
        model = click_model.keras_model(gather_on=gather_on)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01), **options)
    steps = click_model.batches(STEPS, 1, SAMPLES)
    keys, labels = click_model.concatenate([ranks[0] for ranks in steps])
    model.compile(
        optimizer, keras.losses.BinaryCrossentropy(from_logits=True), steps_per_execution=2
    )
    plain = data = tf.data.Dataset.from_tensor_slices((keys, labels)).batch(SAMPLES)
    layer = click_model.collection(model)
    if announced is not None:
        data = tfhybrid.data.announce(data, layers=layer, **announced)
    history = model.fit(data, epochs=2, validation_data=plain, verbose=0)
    found = [np.array([table.digest() for table in layer.tables.values()])]
    found += click_model.dense_weights(model)
    found += [np.array(of_epochs) for of_epochs in history.history.values()]
    found.append(model.predict(plain, verbose=0))
    found.append(trained_by_hand(model, optimizer, keys, labels))
    found.append(np.array(model.evaluate(plain, verbose=0)))
    check_places(model, plain.element_spec[0], device if DEVICE in gather_on else None)
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return found


def trained_by_hand(
    model: keras.Model, optimizer: Any, keys: dict[str, np.ndarray], labels: np.ndarray
) -> np.ndarray:
    """Returns the losses of a loop over a pass that was announced by hand, eager and compiled."""

    def step(batch: dict[str, tf.Tensor], wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(batch, training=True), tf.float32)
            loss = tf.reduce_mean((logits - wanted[:, tf.newaxis]) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    losses = []
    for run in (step, tf.function(step)):
        batches = [
            {name: of_feature[first : first + SAMPLES] for name, of_feature in keys.items()}
            for first in range(0, 4 * SAMPLES, SAMPLES)
        ]
        tables = {
            "user": [batch["user"] for batch in batches],
            "item": [
                np.concatenate([batch["clicked"], batch["carted"]], axis=1) for batch in batches
            ],
        }
        by_batch = zip(*tables.values(), strict=True)
        by_table = [dict(zip(tables, of_batch, strict=True)) for of_batch in by_batch]
        with tfhybrid.announce(by_table):
            for number, batch in enumerate(batches):
                first = number * SAMPLES
                given = {name: tf.constant(of_feature) for name, of_feature in batch.items()}
                wanted = tf.constant(labels[first : first + SAMPLES], tf.float32)
                losses.append(run(given, tf.reshape(wanted, [-1])).numpy())
    return np.array(losses)


def check_places(model: keras.Model, keys: dict[str, tf.TensorSpec], device: str | None) -> None:
    """Rows are read on the host, and gathered on the device."""
    call = tf.function(model).get_concrete_function(keys)
    places = {"TfhybridDistinctRows": "CPU:0", "GatherV2": device}
    found = {op.type: place_of(op) for op in call.graph.get_operations() if op.type in places}
    assert found == ({} if device is None else places), found


def place_of(op: tf.Operation) -> str:
    return op.device.rpartition("/device:")[-1]


def check_narrow(gather_on: str) -> None:
    """Embeddings and their gradients are cast on the host, so 16 bits a number come and go."""
    tfhybrid.init()
    config = tfhybrid.TableConfig(dim=4, gather_on=gather_on)
    with tf.device("CPU:1"):
        layer = tfhybrid.layers.EmbeddingCollection({"item": config}, dtype="mixed_bfloat16")
        layer.build()

    @tf.function
    def step(keys: tf.Tensor) -> tf.Tensor:
        with tf.device("CPU:1"):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer({"item": keys})["item"] ** 2)
            return tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables)[0].values)

    graph = step.get_concrete_function(tf.TensorSpec([None], tf.int64)).graph
    casts = {
        (op.inputs[0].dtype.name, op.outputs[0].dtype.name): place_of(op)
        for op in graph.get_operations()
        if op.type == "Cast" and op.inputs[0].shape.rank == 2
    }
    assert casts == dict.fromkeys(NARROWED, "CPU:0"), casts
    tfhybrid.shutdown()


def main() -> None:
    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        processor, [tf.config.LogicalDeviceConfiguration()] * 3
    )
    tight = {"batches": 3, "fast_tier_bytes": 40_000}
    cases = {
        1: (((DEVICE, DEVICE), "CPU:1", {"batches": 5}), ((DEVICE, HOST), "CPU:2", tight)),
        3: (((HOST, DEVICE), "CPU:0", None),),
    }
    for passes, of_passes in cases.items():
        wanted = fitted((HOST, HOST), "CPU:0", None, backward_passes_per_step=passes)
        for gather_on, device, announced in of_passes:
            found = fitted(gather_on, device, announced, backward_passes_per_step=passes)
            for mine, of_host in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(mine, of_host, err_msg=f"{gather_on} on {device}")
    wanted = fitted((HOST, HOST), "CPU:0", None, "mixed_bfloat16")
    found = fitted((DEVICE, DEVICE), "CPU:1", {"batches": 5}, "mixed_bfloat16")
    for mine, of_host in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, of_host, err_msg="bfloat16")
    for gather_on in (HOST, DEVICE):
        check_narrow(gather_on)
    sys.stdout.write("exact\n")


if __name__ == "__main__":
    main()
