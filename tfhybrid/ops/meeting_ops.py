"""The TensorFlow ops of a meeting, which record that this rank waits for all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfhybrid.core.meetings import Meeting
from tfhybrid.ops._library import OPS

_order: tf.Variable | None = None


@dataclasses.dataclass(frozen=True)
class MeetingRef:
    """A meeting's identification in ops.

    Args:
        engine: Number of this rank's engine.
        meeting: This rank's part in it.
    """

    engine: int
    meeting: Meeting

    @property
    def signature(self) -> int:
        """The meeting's signature, an unsigned 64-bit number."""
        return self.meeting.signature

    def begin(self, told: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Records that the meeting begins.

        Args:
            told: float32; the meeting's ops must depend on the result.

        Returns:
            The same tensor, and the number of the meeting.
        """
        passed, number = OPS.tfhybrid_begin_meeting(
            order=_order_of_meetings().handle,
            told=told,
            engine=self.engine,
            signature=_signed(self.meeting.signature),
            series=_signed(self.meeting.series),
        )
        return passed, number

    def sum_on_host(
        self, told: tf.Tensor, gradients: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Averages gradients over the ranks of this host, weighted by `told[0]`.

        Args:
            told: float32 `[n]`, n >= 1, to be summed.
            gradients: float32 or float64.

        Returns:
            The sum of `told`, and the averages. On several hosts the leader gets the sums of its
            host, and calls `share_on_host`; the other ranks get what the leader shares.
        """
        sums = OPS.tfhybrid_sum_on_host(
            order=_order_of_meetings().handle,
            told=told,
            gradients=list(gradients),
            engine=self.engine,
            signature=_signed(self.meeting.signature),
        )
        return sums.told_by_all, list(sums.sums)

    def share_on_host(
        self, told: tf.Tensor, gradients: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Averages the sums of all hosts, for all ranks of the leader's host.

        Args:
            told: The sum of `told` over all hosts.
            gradients: The sums of gradients over all hosts.

        Returns:
            `told`, and the averages.
        """
        shared = OPS.tfhybrid_broadcast_on_host(
            order=_order_of_meetings().handle,
            told=told,
            gradients=list(gradients),
            engine=self.engine,
        )
        return shared.told_by_all, list(shared.averages)

    def end(self, told: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Records that the meeting has ended, and returns its result.

        Args:
            told: float32, the meeting's result.
            number: The meeting's number.
        """
        return OPS.tfhybrid_end_meeting(told=told, number=number, engine=self.engine)


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
    """Returns an unsigned 64-bit number as an op's (signed) attribute."""
    return word - 2**64 if word >= 2**63 else word
