"""Agreement of all ranks on the end of a pass, for `DistributedOptimizer(update="pass")`."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.ops.meeting_ops import MeetingRef
from tfhybrid.optimizers.micro_batches import MicroBatches

LONGEST_PASS = 4096
"""Maximum number of batches of a pass. It bounds the gradients per key that one update sums."""


class PassBoundary:
    """Length of each pass, on which all ranks agree when the pass begins.

    The data pipeline of a rank offers the announced batches. In the step that trains the first of
    them, the ranks meet and choose the smallest offer as the length of the pass. Ranks without data
    do not count.

    Args:
        micro_batches: Batches of the pass that wait for its update.

    Attributes:
        total: Number of batches that this rank has trained since the optimizer was created, int64;
            a restart from memory keeps it.
    """

    def __init__(self, micro_batches: MicroBatches) -> None:
        self._micro_batches = micro_batches
        self._offered = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._length = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.total = tf.Variable(0, dtype=tf.int64, trainable=False)

    @property
    def longest(self) -> int:
        """Maximum number of batches of a pass."""
        return LONGEST_PASS

    @property
    def trained(self) -> int:
        """Number of batches that this rank has trained; only outside a graph."""
        return int(self.total)

    @property
    def waiting(self) -> int:
        """Number of trained batches that wait for their update; only outside a graph."""
        return self._micro_batches.waiting

    def offer(self, batches: int) -> None:
        """Announces that the next batch will be trained; only outside a graph.

        Args:
            batches: Number of announced batches, including the next one; 0 if there is none.
        """
        self._offered.assign(batches)

    def length(self, waiting: tf.Tensor, meeting: MeetingRef) -> tf.Tensor:
        """Returns the number of batches of the pass, int64, in a graph.

        The first batch of a pass is a collective: all ranks agree on the length in it. The graph
        fails if the batch was not offered.

        Args:
            waiting: Number of batches of the pass so far, including this one, int64.
            meeting: Meeting of all ranks at the beginning of a pass.
        """
        # `offer` runs while the batch is fetched, and `waiting` depends on the batch.
        with tf.control_dependencies([waiting]):
            offered = self._offered.read_value()
            missing = tf.debugging.Assert(
                offered > 0,
                [
                    "update='pass' trains what tfhybrid.data.announce(..., optimizer=optimizer) "
                    "yields, each batch once. Received: a batch that it did not yield, on "
                    f"{distributed.here()}"
                ],
            )
            with tf.control_dependencies([missing] if missing is not None else []):
                self._offered.assign(0)
                self.total.assign_add(1)

                def begin() -> tf.Tensor:
                    return self._length.assign(agree(offered, meeting), read_value=True)

                return tf.cond(tf.equal(waiting, 1), begin, self._length.read_value)


def agree(offered: tf.Tensor, meeting: MeetingRef) -> tf.Tensor:
    """Returns the length of a pass, int64, in a graph; 0 if no rank has data. A collective.

    Args:
        offered: Number of batches that this rank could train, int64; 0 if its data have ended.
        meeting: Meeting of all ranks at the beginning of a pass.
    """
    if distributed.size() == 1:
        return offered
    own, number = meeting.begin(tf.cast(offered, tf.float32)[tf.newaxis])
    every = distributed.gather_messages(own, f"tfhybrid.pass.{meeting.signature:016x}")
    every = tf.cast(meeting.end(every, number), tf.int64)
    fewest = tf.reduce_min(tf.where(every > 0, every, LONGEST_PASS + 1))
    return tf.where(fewest > LONGEST_PASS, tf.constant(0, tf.int64), fewest)
