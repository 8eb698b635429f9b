"""Trains a model whose first layer lies on a rank's first device, and its last on the last one.

two_devices.py DEVICES. The first rank prints digests, and where the dense weights lie.
"""

from __future__ import annotations

import hashlib
import sys

import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model


class Placed(keras.layers.Layer):
    """A dense layer on a device."""

    def __init__(self, units: int, device: str) -> None:
        super().__init__()
        initializer = keras.initializers.GlorotUniform(units)
        self.dense = keras.layers.Dense(units, "tanh", kernel_initializer=initializer)
        self.device = device

    def build(self, shape: tuple) -> None:
        with tf.device(self.device):
            self.dense.build(shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        with tf.device(self.device):
            return self.dense(inputs)


tfhybrid.init("two-devices", seed=11, devices_per_rank=int(sys.argv[1]))
tables = tfhybrid.layers.EmbeddingCollection(
    {name: tfhybrid.TableConfig(dim, click_model.WIDE) for name, dim in click_model.DIMS.items()},
    shared={"item": ["clicked", "carted"]},
)
inputs = {
    name: keras.Input((count,), dtype="int64", name=name)
    for name, count in click_model.LENGTHS.items()
}
x = keras.layers.Concatenate()([keras.layers.Flatten()(each) for each in tables(inputs).values()])
for units, device in ((16, tfhybrid.devices()[0]), (1, tfhybrid.devices()[-1])):
    x = Placed(units, device)(x)
model = keras.Model(inputs, x)
optimizer = tfhybrid.DistributedOptimizer("adam")
model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
for ranks in click_model.batches(10, tfhybrid.size()):
    model.train_on_batch(*ranks[tfhybrid.rank()])
weights = [
    weight for layer in model.layers if isinstance(layer, Placed) for weight in layer.weights
]
digests = {name: f"{table.digest():016x}" for name, table in tables.tables.items()}
dense = b"".join(weight.numpy().tobytes() for weight in weights)
digests["dense"] = hashlib.sha256(dense).hexdigest()
if tfhybrid.rank() == 0:
    devices = [tf.DeviceSpec.from_string(weight.value.device) for weight in weights]
    lie = [f"{device.device_type}:{device.device_index}" for device in devices]
    sys.stdout.write(f"digests {digests}\non {' '.join(lie)}\n")
