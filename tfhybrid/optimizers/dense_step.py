"""The dense part of a step: gradients of all ranks, averaged over their samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._keras import path_of
from tfhybrid.errors import ConfigError
from tfhybrid.ops.meeting_ops import MeetingRef
from tfhybrid.ops.update_ops import LARGEST_GRADIENT

WAYS = ("auto", "horovod", "hierarchical")


def check_way(way: str) -> None:
    """Checks the argument `dense` of `DistributedOptimizer`.

    Args:
        way: Value of the argument.

    Raises:
        ConfigError: `way` is not one of `WAYS`.
    """
    if way not in WAYS:
        raise ConfigError(f"dense must be one of {WAYS}. Received: {way!r}")


def choose_way(way: str, exchange: str) -> str:
    """Replaces `"auto"` by the best way for this job. Every rank must call it.

    Args:
        way: Way to add up dense gradients, one of `WAYS`.
        exchange: Route of sparse gradients. With `"all_ranks"`, dense gradients use Horovod too.

    Returns:
        `"horovod"` or `"hierarchical"`; equal on all ranks.
    """
    if way != "auto":
        return way
    alone = len(set(distributed.hosts())) == distributed.size()
    if alone or exchange == "all_ranks":
        return "horovod"
    have_gpus = distributed.allgather_object(bool(tf.config.list_physical_devices("GPU")))
    return "horovod" if any(have_gpus) else "hierarchical"


class DenseStep(NamedTuple):
    """Dense gradients of a step, and the numbers that ranks add up with them.

    Args:
        gradients: Gradients of a rank's mean loss; after `reduce`, averaged over the samples of all
            ranks.
        samples: Number of samples.
        active: Number of ranks that still train; 1 or 0 for one rank.
        nonfinite: Number of ranks with a gradient that is not finite.
        stopping: Number of ranks that request to stop after this step.
    """

    gradients: list[tf.Tensor]
    samples: tf.Tensor
    active: tf.Tensor
    nonfinite: tf.Tensor
    stopping: tf.Tensor

    @property
    def applies(self) -> tf.Tensor:
        """Whether to apply the gradients, bool: false without samples or if one is not finite."""
        with tf.device("CPU:0"):  # where `tf.cond` reads it
            return tf.logical_and(self.samples > 0, tf.equal(self.nonfinite, 0))

    @property
    def failed(self) -> tf.Tensor:
        """Whether a rank has a gradient that is not finite, bool."""
        with tf.device("CPU:0"):
            return self.nonfinite > 0


def reduce(mine: DenseStep, meeting: MeetingRef, way: str) -> DenseStep:
    """Averages dense gradients over the samples of all ranks, in a graph. A collective.

    The other values that ranks exchange are sent in the same message, at no extra cost.

    Args:
        mine: Gradients of this rank, in the same order on all ranks, and its numbers, of any dtype.
        meeting: Meeting of all ranks for this reduction. Both ways send its signature, so ranks
            with different variables wait instead of adding up gradients that do not match.
        way: Way to add up the gradients, `"horovod"` or `"hierarchical"`.

    Returns:
        The averages, and the sums of the numbers over the ranks, float32.
    """
    gradients, *numbers = mine
    with tf.device("CPU:0"):  # the numbers decide what the host does
        own = tf.stack([tf.cast(each, tf.float32) for each in numbers])
        if distributed.size() == 1:
            return DenseStep(list(gradients), *tf.unstack(own))
    own, number = meeting.begin(own)
    average = _average_by_host if way == "hierarchical" else _average_by_horovod
    totals, averages = average(own, gradients, meeting)
    with tf.device("CPU:0"):
        return DenseStep(averages, *tf.unstack(meeting.end(totals, number)))


def _average_by_horovod(
    own: tf.Tensor, gradients: Sequence[tf.Tensor], meeting: MeetingRef
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Averages with one allreduce among all ranks."""
    weighted = [gradient * tf.cast(own[0], gradient.dtype) for gradient in gradients]
    *sums, totals = distributed.total([*weighted, own], _name_of(meeting))
    count = tf.maximum(totals[0], 1.0)
    return totals, [gradient / tf.cast(count, gradient.dtype) for gradient in sums]


def _average_by_host(
    own: tf.Tensor, gradients: Sequence[tf.Tensor], meeting: MeetingRef
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Averages in each host's shared memory, then with an allreduce among the leaders of hosts."""
    wide = [_widened(gradient) for gradient in gradients]
    totals, sums = meeting.sum_on_host(own, wide)
    if distributed.cross_size() > 1 and distributed.local_rank() == 0:
        *sums, totals = distributed.total_of_hosts([*sums, totals], _name_of(meeting))
        totals, sums = meeting.share_on_host(totals, sums)
    pairs = zip(sums, gradients, strict=True)
    return totals, [tf.cast(average, gradient.dtype) for average, gradient in pairs]


def _name_of(meeting: MeetingRef) -> str:
    return f"tfhybrid.dense.{meeting.signature:016x}"


def _widened(gradient: tf.Tensor) -> tf.Tensor:
    """Widens to float32 for the sum in the core, so that smaller types are rounded only once."""
    return gradient if gradient.dtype.size >= 4 else tf.cast(gradient, tf.float32)


def find_nonfinite(
    gradients: Sequence[tf.Tensor], variables: Sequence[Any], rate: Callable[[], Any]
) -> tf.Tensor:
    """Describes the first unusable gradient, or returns "" if all can be used, in a graph.

    A gradient is unusable if it is not finite, or so large that its square may overflow. The text
    is the beginning of a sentence: "variable 'PATH' is not finite, or ...". The graph fails if
    there are gradients, and their learning rate is negative or not finite.

    Args:
        gradients: Gradients of this rank.
        variables: Dense variable of each gradient, for its path.
        rate: Function that returns the learning rate of the dense variables.
    """
    if not gradients:
        return tf.constant("")
    now = tf.convert_to_tensor(rate())
    # The root of a negative rate is NaN.
    usable = tf.stack([*map(_can_be_used, gradients), tf.math.is_finite(tf.sqrt(now))])
    problem = f"is not finite, or beyond {LARGEST_GRADIENT:g},"
    # One copy from a device, of all of them.
    with tf.device("CPU:0"):
        names = tf.constant([f"variable '{path_of(variable)}' {problem}" for variable in variables])
        valid = tf.cond(usable[-1], lambda: tf.constant(True), lambda: _refuse(now))
        with tf.control_dependencies([valid]):
            first = tf.argmin(tf.cast(usable, tf.int32))
            return tf.where(tf.reduce_all(usable), "", tf.gather(names, first))


def _refuse(rate: tf.Tensor) -> tf.Tensor:
    rule = "The learning rate of an optimizer must be finite and at least 0. Received: "
    why = tf.strings.join([rule, tf.strings.as_string(rate)])
    with tf.control_dependencies([tf.debugging.Assert(False, [why])]):
        return tf.constant(False)


def _can_be_used(gradient: tf.Tensor) -> tf.Tensor:
    limit = min(LARGEST_GRADIENT, gradient.dtype.max)
    return tf.reduce_all(tf.abs(gradient) <= tf.cast(limit, gradient.dtype))
