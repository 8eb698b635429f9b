"""The TensorFlow ops of a meeting: what notes that this rank waits for all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfhybrid.core.meetings import Meeting
from tfhybrid.ops._library import OPS

_order: tf.Variable | None = None


@dataclasses.dataclass(frozen=True)
class MeetingRef:
    """A meeting as an op names it.

    Args:
        engine: Number of this rank's engine.
        meeting: What this rank does in it.
    """

    engine: int
    meeting: Meeting

    @property
    def signature(self) -> int:
        """Of the meeting, 64 bits without a sign."""
        return self.meeting.signature

    def begin(self, told: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Notes that the meeting begins.

        Args:
            told: float32; what the meeting uses comes after it.

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
        """Averages gradients over the ranks of this host, each weighed by its `told[0]`.

        Args:
            told: float32 `[n]`, at least one, to be added up.
            gradients: float32 or float64.

        Returns:
            What all told, and the averages. With other hosts the ranks that are no leader get what
            the leader shares; it gets the sums of its host, and calls `share_on_host`.
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
        """Averages sums over all hosts, for all ranks of the leader's.

        Args:
            told: What all hosts told.
            gradients: Their sums.

        Returns:
            What was told, and the averages.
        """
        shared = OPS.tfhybrid_share_on_host(
            order=_order_of_meetings().handle,
            told=told,
            gradients=list(gradients),
            engine=self.engine,
        )
        return shared.told_by_all, list(shared.averages)

    def end(self, told: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Notes that the meeting has ended, and returns what it gave.

        Args:
            told: float32, what the meeting gave.
            number: Of the meeting.
        """
        return OPS.tfhybrid_end_meeting(told=told, number=number, engine=self.engine)


def _order_of_meetings() -> tf.Variable:
    """Returns what meetings of a graph take: TensorFlow keeps them in the order of the program.

    Two steps of a graph that do not depend on each other could else come in another order on
    another rank.
    """
    global _order
    if _order is None:
        with tf.init_scope(), tf.device("CPU:0"):
            _order = tf.Variable(0, dtype=tf.int64, trainable=False, name="tfhybrid_meetings")
    return _order


def _signed(word: int) -> int:
    """Returns 64 bits as an attribute of an op has them."""
    return word - 2**64 if word >= 2**63 else word
