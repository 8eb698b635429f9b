"""Where a pass ends for all ranks, with `DistributedOptimizer(update="pass")`."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.ops.meeting_ops import MeetingRef
from tfhybrid.optimizers.micro_batches import MicroBatches

LONGEST_PASS = 4096
"""Most batches of a pass. It bounds how many gradients of a key one update adds up."""


class PassBoundary:
    """The length of each pass, which all ranks agree on when the pass begins.

    The data of a rank offer the batches that stand announced. The step that trains the first of
    them meets the other ranks once: the pass has as many batches as the rank offers that has the
    fewest. Ranks without data offer nothing, and do not count.

    Args:
        micro_batches: The batches of the pass that wait for its update.
    """

    def __init__(self, micro_batches: MicroBatches) -> None:
        self._micro_batches = micro_batches
        self._offered = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._length = tf.Variable(0, dtype=tf.int64, trainable=False)
        # Of this rank, since the optimizer was made; a restart from memory keeps it.
        self.total = tf.Variable(0, dtype=tf.int64, trainable=False)

    @property
    def longest(self) -> int:
        """Most batches of a pass."""
        return LONGEST_PASS

    @property
    def trained(self) -> int:
        """Batches that this rank has trained; not in a graph."""
        return int(self.total)

    @property
    def waiting(self) -> int:
        """Those of them that wait for their update; not in a graph."""
        return self._micro_batches.waiting

    def offer(self, batches: int) -> None:
        """Says that a batch is about to be trained; not in a graph.

        Args:
            batches: That stand announced from this one on; 0 if there is none.
        """
        self._offered.assign(batches)

    def length(self, waiting: tf.Tensor, meeting: MeetingRef) -> tf.Tensor:
        """Returns how many batches the pass has, int64, in a graph; the first one agrees on it.

        Args:
            waiting: int64, the batches of the pass so far, this one included.
            meeting: Of all ranks, when a pass begins.
        """
        # The data offer while the batch is fetched, which `waiting` depends on.
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
    """Returns the length of a pass, int64, in a graph; 0 if no rank has data.

    Args:
        offered: int64, the batches that this rank could train; 0 if its data have ended.
        meeting: As of `PassBoundary.length`.
    """
    if distributed.size() == 1:
        return offered
    own, number = meeting.begin(tf.cast(offered, tf.float32)[tf.newaxis])
    every = distributed.gather_messages(own, f"tfhybrid.pass.{meeting.signature:016x}")
    every = tf.cast(meeting.end(every, number), tf.int64)
    fewest = tf.reduce_min(tf.where(every > 0, every, LONGEST_PASS + 1))
    return tf.where(fewest > LONGEST_PASS, tf.constant(0, tf.int64), fewest)
