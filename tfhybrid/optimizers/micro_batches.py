"""Sums of the gradients of several micro-batches, before they are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class MicroBatches:
    """Sums over this rank's micro-batches since it last exchanged gradients with other ranks.

    Keeps the sum of the dense gradients, the number of samples, and the first problem: the
    description of a gradient that is not finite. The native core keeps and merges the sparse
    gradients (`update_ops.keep_gradients`). Only the training thread may call it.

    Args:
        several: Whether a step may have more than one micro-batch. If not, nothing is summed.
    """

    def __init__(self, several: bool) -> None:
        self.several = several
        with tf.device("CPU:0"):
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._samples = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._problem = tf.Variable("", dtype=tf.string, trainable=False)
        self._sums: dict[int, tf.Variable] = {}

    @property
    def waiting(self) -> int:
        """Number of micro-batches that wait for their exchange; only outside a graph."""
        return int(self._count)

    def build(self, variables: Sequence[Any]) -> None:
        """Creates the variables for the sums of dense gradients."""
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
        problem: tf.Tensor,
    ) -> tf.Tensor:
        """Adds a micro-batch, in a graph.

        Args:
            variables: Dense variables.
            gradients: Gradients, one per variable.
            samples: Number of samples of the micro-batch, int64.
            problem: Description of a gradient that is not finite, string; "" if all are finite.

        Returns:
            The number of micro-batches that wait now, int64.
        """
        # Keras fetches the batch inside the graph of the step. When the data ends, ops that do not
        # depend on a gradient would still run, and count a micro-batch that does not exist.
        with tf.control_dependencies([*gradients, samples, problem]):
            for variable, gradient in zip(variables, gradients, strict=True):
                self._sums[id(variable)].assign_add(gradient)
            self._samples.assign_add(samples)
            self._problem.assign(tf.where(tf.equal(self._problem, ""), problem, self._problem))
            return self._count.assign_add(1, read_value=True)

    def take(
        self,
        variables: Sequence[Any],
        use: Callable[[list[tf.Tensor], tf.Tensor, tf.Tensor], None],
    ) -> None:
        """Passes the sums to a function, and resets them, in a graph.

        Args:
            variables: Dense variables whose sums are passed.
            use: Function of (gradients, samples, problem). `samples` is the mean number of samples
                of the micro-batches, which is the weight of the summed gradients. `problem` is the
                problem of the first micro-batch that has one; empty if none has.
        """
        sums = [self._sums[id(variable)] for variable in variables]
        with tf.device("CPU:0"):  # like the counters
            count = tf.maximum(self._count.read_value(), 1)
            samples = tf.cast(tf.round(self._samples / count), tf.int64)
        taken = [tf.identity(total) for total in sums], samples, tf.identity(self._problem)
        with tf.control_dependencies([*taken[0], *taken[1:]]):
            for total in sums:
                total.assign(tf.zeros_like(total))
            self._count.assign(0)
            self._samples.assign(0)
            self._problem.assign("")
        use(*taken)
