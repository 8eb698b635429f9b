"""The time of the events that a model is trained on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.core import native


class _Clock:
    """Holder of a variable that is not a weight of the layer, because the tables keep the time."""

    def __init__(self) -> None:
        with tf.init_scope():
            self.latest = tf.Variable(native.NO_TIME, trainable=False, dtype=tf.int64)


class EventClock(keras.layers.Layer):
    """The latest event time that this rank has seen: the time of the data, not wall-clock time.

    Tables use it to evict rows (`Eviction(unseen_time=...)`), so that a run over old logs, or a
    resumed run, evicts the same rows as the original run. It never goes backwards; the latest time
    of all ranks counts.

    Called as a layer, it returns its inputs and, in training, records the times of their samples.
    If the data have no times, call `advance`.

    Args:
        name: Name of the layer.

    Example:

    ```python
    clock = tfhybrid.layers.EventClock()
    features = clock(features, event_time=inputs["seconds"])  # int64 [batch] or [batch, 1]
    embedded = tfhybrid.layers.EmbeddingCollection(configs)(features)
    ...
    optimizer = tfhybrid.DistributedOptimizer("adagrad", event_clock=clock)
    ```
    """

    def __init__(self, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name, **options)
        self._clock = _Clock()

    @property
    def latest(self) -> tf.Tensor:
        """The latest event time, int64; the smallest int64 before the first event."""
        return self._clock.latest.read_value()

    def advance(self, time: int | tf.Tensor) -> None:
        """Records that events of a time were seen.

        Args:
            time: Times, int64 of any shape, in the unit of `Eviction(unseen_time=...)`.
        """
        newest = tf.reduce_max(tf.cast(time, tf.int64))
        self._clock.latest.assign(tf.maximum(self._clock.latest, newest))

    def call(self, inputs: Any, event_time: tf.Tensor, training: bool | None = None) -> Any:
        """Returns `inputs`.

        Args:
            inputs: Tensors in any structure.
            event_time: Times of the samples, int64.
            training: Whether to record the times.
        """
        if not training:
            return inputs
        self.advance(event_time)
        return tf.nest.map_structure(tf.identity, inputs)

    def compute_output_spec(
        self, inputs: Any, event_time: Any, training: bool | None = None
    ) -> Any:
        """Returns shape and dtype of `call`'s output, equal to those of `inputs`."""
        return tf.nest.map_structure(
            lambda tensor: keras.KerasTensor(tensor.shape, tensor.dtype), inputs
        )
