"""A training step on the ads shape, cut off earlier and earlier.

Each cut is a `tf.function` of its own; what a part of the step costs is the difference of two. They
return what was computed last, or TensorFlow would leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf

import tfhybrid
from benchmarks.roles.ads.workload import PAD, AdsConfig, Feature

LEARNING_RATE = 0.05
Keys = Mapping[str, tf.Tensor]
# The keys of all sequences and of all other features, as `Batches.next` lays them.
PackedKeys = tuple[tf.Tensor, tf.Tensor]


def pool(feature: Feature, keys: tf.Tensor, embedded: tf.Tensor) -> tf.Tensor:
    """Returns the mean over a feature's keys without the padding, `[batch, dim]`."""
    if feature.length == 1:
        return tf.squeeze(embedded, axis=1)
    present = tf.cast(tf.not_equal(keys, PAD), tf.float32)[..., None]
    return tf.reduce_sum(embedded * present, axis=1) / tf.reduce_sum(present, axis=1)


class AdsModel:
    """The collection, a small tower and their optimizer; its methods build graphs.

    Args:
        config: the workload.
    """

    def __init__(self, config: AdsConfig) -> None:
        self._layout = config.layout
        self.collection = tfhybrid.layers.EmbeddingCollection(
            {feature.name: tfhybrid.TableConfig(dim=feature.dim) for feature in self._layout}
        )
        self.collection.build()
        self._tower = keras.Sequential(
            [
                keras.Input((sum(feature.dim for feature in self._layout),)),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
        self.tables = self.collection.trainable_variables
        self.weights = self._tower.trainable_variables
        self._optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(LEARNING_RATE))
        self._optimizer.build([*self.tables, *self.weights])

    def lookup(self, packed: PackedKeys) -> list[tf.Tensor]:
        """Reads all embeddings."""
        return list(self.collection(self._unpack(packed)).values())

    def forward(self, packed: PackedKeys, labels: tf.Tensor) -> tf.Tensor:
        """Returns the loss."""
        keys = self._unpack(packed)
        embedded = self.collection(keys)
        pooled = [pool(f, keys[f.name], embedded[f.name]) for f in self._layout]
        logits = self._tower(tf.concat(pooled, axis=-1))
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))

    def backward(self, packed: PackedKeys, labels: tf.Tensor) -> list[tf.Tensor]:
        """Goes forward and back; nothing is applied."""
        tables, weights = self._gradients(packed, labels)
        return [*[gradient.values for gradient in tables], *weights]

    def sparse_step(self, packed: PackedKeys, labels: tf.Tensor) -> list[tf.Tensor]:
        """Trains the tables; dense gradients are not applied."""
        tables, weights = self._gradients(packed, labels)
        self._optimizer.apply(tables, self.tables)
        return weights

    def step(self, packed: PackedKeys, labels: tf.Tensor) -> None:
        """Trains once."""
        tables, weights = self._gradients(packed, labels)
        self._optimizer.apply([*tables, *weights], [*self.tables, *self.weights])

    def fill(self, keys: tf.Tensor) -> None:
        """Makes rows of the same keys in all tables, by gradients of zero."""
        count = tf.size(keys)
        zeros = [tf.zeros((count, feature.dim)) for feature in self._layout]
        self._optimizer.apply([tf.IndexedSlices(zero, keys) for zero in zeros], self.tables)

    def _gradients(
        self, packed: PackedKeys, labels: tf.Tensor
    ) -> tuple[list[tf.IndexedSlices], list[tf.Tensor]]:
        """Returns the gradients of the tables and of the dense weights, as the tape makes them."""
        with tf.GradientTape() as tape:
            loss = self.forward(packed, labels)
        variables = [variable.value for variable in [*self.tables, *self.weights]]
        gradients = tape.gradient(loss, variables)
        return gradients[: len(self.tables)], gradients[len(self.tables) :]

    def _unpack(self, packed: PackedKeys) -> Keys:
        """Returns the keys by feature; an unstacked tensor is not copied."""
        sequences, others = (iter(tf.unstack(keys)) for keys in packed)
        return {f.name: next(sequences if f.sequence else others) for f in self._layout}
