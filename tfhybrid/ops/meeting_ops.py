"""TensorFlow ops of a meeting, which record that this rank waits for all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfhybrid.core.meetings import Meeting
from tfhybrid.ops._library import OPS

_order: tf.Variable | None = None


@dataclasses.dataclass(frozen=True)
class MeetingRef:
    """Identification, in ops, of a meeting: a point, such as a step, where all ranks wait.

    The methods build ops of a graph, or run them in eager code. In them, `numbers` are numbers that
    the ranks sum up in the meeting.

    Args:
        engine: Number of this rank's engine.
        meeting: This rank's part in the meeting.
    """

    engine: int
    meeting: Meeting

    @property
    def signature(self) -> int:
        """The meeting's signature, an unsigned 64-bit number."""
        return self.meeting.signature

    def begin(self, numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Records that the meeting begins.

        Args:
            numbers: Numbers of this rank, float32.

        Returns:
            `numbers` unchanged, on which the meeting's ops must depend; and the number of the
            meeting, for `end`.
        """
        result, number = OPS.tfhybrid_begin_meeting(
            order=_order_of_meetings().handle,
            told=numbers,
            engine=self.engine,
            signature=_signed(self.meeting.signature),
            series=_signed(self.meeting.series),
        )
        return result, number

    def sum_on_host(
        self, numbers: tf.Tensor, gradients: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Averages gradients over the ranks of this host, weighted by `numbers[0]`.

        Args:
            numbers: Numbers of this rank, float32 `[n]`, n >= 1.
            gradients: Gradients of this rank, float32 or float64.

        Returns:
            The sum of `numbers`, and the averages. On several hosts, the leader instead gets the
            sums of its host, which it must pass on to `share_on_host`; the other ranks get the
            results of that call.
        """
        sums = OPS.tfhybrid_sum_on_host(
            order=_order_of_meetings().handle,
            told=numbers,
            gradients=list(gradients),
            engine=self.engine,
            signature=_signed(self.meeting.signature),
        )
        return sums.told_by_all, list(sums.sums)

    def share_on_host(
        self, numbers: tf.Tensor, gradients: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Averages the sums of all hosts, for all ranks of this host; only on its leader.

        Args:
            numbers: Sum of the numbers of all ranks of all hosts, float32 `[n]`.
            gradients: Sums of the gradients over all hosts.

        Returns:
            `numbers`, and the averages.
        """
        shared = OPS.tfhybrid_broadcast_on_host(
            order=_order_of_meetings().handle,
            told=numbers,
            gradients=list(gradients),
            engine=self.engine,
        )
        return shared.told_by_all, list(shared.averages)

    def end(self, numbers: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Records that the meeting has ended, and returns `numbers` unchanged.

        Args:
            numbers: Result of the meeting, float32.
            number: Number of the meeting, from `begin`.
        """
        return OPS.tfhybrid_end_meeting(told=numbers, number=number, engine=self.engine)


def _order_of_meetings() -> tf.Variable:
    """Returns a resource that keeps the meetings of a graph in program order.

    Otherwise two independent steps of a graph could run in another order on another rank.
    """
    global _order
    if _order is None:
        with tf.init_scope(), tf.device("CPU:0"):
            _order = tf.Variable(0, dtype=tf.int64, trainable=False, name="tfhybrid_meetings")
    return _order


def _signed(word: int) -> int:
    """Returns an unsigned 64-bit number as an attribute of an op, which is signed."""
    return word - 2**64 if word >= 2**63 else word
