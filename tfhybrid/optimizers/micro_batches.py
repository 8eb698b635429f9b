"""Sums the gradients of several micro-batches before they are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class MicroBatches:
    """The dense gradients, samples and findings of this rank since its last exchange.

    The native core keeps and merges the sparse gradients (`update_ops.keep_gradients`).

    Args:
        several: Whether a step may have more than one.
    """

    def __init__(self, several: bool) -> None:
        self.several = several
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._samples = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._found = tf.Variable("", dtype=tf.string, trainable=False)
        self._sums: dict[int, tf.Variable] = {}

    @property
    def waiting(self) -> int:
        """How many wait for their exchange; not in a graph."""
        return int(self._count)

    def build(self, variables: Sequence[Any]) -> None:
        """Makes room for the gradients of dense variables."""
        if self.several:
            self._sums = {
                id(variable): tf.Variable(tf.zeros(variable.shape, variable.dtype), False)
                for variable in variables
            }

    def add(
        self,
        variables: Sequence[Any],
        gradients: Sequence[tf.Tensor],
        samples: tf.Tensor,
        found: tf.Tensor,
    ) -> tf.Tensor:
        """Adds a micro-batch.

        Args:
            variables: The dense variables.
            gradients: One per variable.
            samples: int64.
            found: string; which gradient is not finite, or "".

        Returns:
            int64: how many wait now.
        """
        # Keras fetches the batch inside the graph of the step. When the data ends, ops that do not
        # depend on a gradient would still run, and count a micro-batch that does not exist.
        with tf.control_dependencies([*gradients, samples, found]):
            for variable, gradient in zip(variables, gradients, strict=True):
                self._sums[id(variable)].assign_add(gradient)
            self._samples.assign_add(samples)
            self._found.assign(tf.where(tf.equal(self._found, ""), found, self._found))
            return self._count.assign_add(1, read_value=True)

    def take(
        self,
        variables: Sequence[Any],
        use: Callable[[list[tf.Tensor], tf.Tensor, tf.Tensor], None],
    ) -> None:
        """Calls `use(gradients, samples, found)` and resets itself.

        `samples` is the mean of the micro-batches: the weight of the summed gradients.
        """
        sums = [self._sums[id(variable)] for variable in variables]
        count = tf.maximum(self._count.read_value(), 1)
        samples = tf.cast(tf.round(self._samples / count), tf.int64)
        taken = [tf.identity(total) for total in sums], samples, tf.identity(self._found)
        with tf.control_dependencies([*taken[0], *taken[1:]]):
            for total in sums:
                total.assign(tf.zeros_like(total))
            self._count.assign(0)
            self._samples.assign(0)
            self._found.assign("")
        use(*taken)
