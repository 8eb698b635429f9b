"""The dense half of a step: gradients of all ranks, weighted by their samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._keras import path_of
from tfhybrid.ops.meeting_ops import MeetingRef
from tfhybrid.ops.update_ops import LARGEST_GRADIENT


class DenseStep(NamedTuple):
    """What all ranks together say about a step.

    Args:
        gradients: Averages over the samples of all ranks.
        samples: Of all ranks, float32.
        active: Number of ranks that still train, float32.
        nonfinite: Number of ranks with a gradient that is not finite, float32.
        stopping: Number of ranks that want training to stop after this step, float32.
    """

    gradients: list[tf.Tensor]
    samples: tf.Tensor
    active: tf.Tensor
    nonfinite: tf.Tensor
    stopping: tf.Tensor

    @property
    def applies(self) -> tf.Tensor:
        """Whether the gradients are to be applied, bool."""
        return tf.logical_and(self.samples > 0, tf.equal(self.nonfinite, 0))


def reduce(
    gradients: Sequence[tf.Tensor],
    samples: tf.Tensor,
    active: bool,
    nonfinite: tf.Tensor,
    stopping: tf.Tensor,
    meeting: MeetingRef,
) -> DenseStep:
    """Averages dense gradients over the samples of all ranks, in a graph.

    What ranks tell each other beside travels in the same group, so that it costs nothing more.

    Args:
        gradients: Of this rank's mean loss, in the same order on all ranks.
        samples: int64, how many they are of.
        active: Whether this rank still trains.
        nonfinite: bool, whether one of its gradients is not finite.
        stopping: float32, 1 where this rank wants training to stop after this step, else 0.
        meeting: Of all ranks, in which they do it. The collective's name has its signature, so that
            ranks that differ wait, and never add up what does not belong together.
    """
    own = tf.stack(
        [
            tf.cast(samples, tf.float32),
            tf.constant(float(active)),
            tf.cast(nonfinite, tf.float32),
            stopping,
        ]
    )
    if distributed.size() == 1:
        return DenseStep(list(gradients), *tf.unstack(own))
    weighted = [gradient * tf.cast(own[0], gradient.dtype) for gradient in gradients]
    own, number = meeting.begin(own)
    *sums, told = distributed.total([*weighted, own], f"tfhybrid.dense.{meeting.signature:016x}")
    told = meeting.end(told, number)
    count = tf.maximum(told[0], 1.0)
    averages = [gradient / tf.cast(count, gradient.dtype) for gradient in sums]
    return DenseStep(averages, *tf.unstack(told))


def find_nonfinite(gradients: Sequence[tf.Tensor], variables: Sequence[Any]) -> tf.Tensor:
    """Returns "variable 'PATH' is ..." for the first gradient that cannot be used, or "".

    That is one which is not finite, or so large that its square may not be.
    """
    if not gradients:
        return tf.constant("")
    finite = tf.stack([_can_be_used(gradient) for gradient in gradients])
    told = f"is not finite, or beyond {LARGEST_GRADIENT:g},"
    names = tf.constant([f"variable '{path_of(variable)}' {told}" for variable in variables])
    first = tf.argmin(tf.cast(finite, tf.int32))
    return tf.where(tf.reduce_all(finite), "", tf.gather(names, first))


def _can_be_used(gradient: tf.Tensor) -> tf.Tensor:
    limit = min(LARGEST_GRADIENT, gradient.dtype.max)
    return tf.reduce_all(tf.abs(gradient) <= tf.cast(limit, gradient.dtype))
