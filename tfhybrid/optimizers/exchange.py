"""How the leaders of several hosts make one update of what each host merged."""

from __future__ import annotations

import logging

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.ops import table_ops
from tfhybrid.ops.table_ops import StepNumbers, UpdateRef
from tfhybrid.optimizers.route_choice import ALLGATHER, OWNER_REDUCE, RouteChoice

_log = logging.getLogger("tfhybrid.exchange")


class Exchange:
    """The leader's collectives of a step, and the choice between the two routes they can take.

    Args:
        sync: `"host_allgather"` or `"owner_reduce"`, or anything else for the faster one, which
            rank 0 chooses when it has seen some steps.
        name: Tells its collectives from those of others.
    """

    def __init__(self, sync: str, name: str) -> None:
        self._name = f"tfhybrid.{name}"
        first = OWNER_REDUCE if sync == "owner_reduce" else ALLGATHER
        # Rank 0's alone counts: it travels with the messages, and all take it for the next step.
        self._next_route = tf.Variable(first, dtype=tf.int64, trainable=False)
        self._choice: RouteChoice | None = None
        if sync not in ("host_allgather", "owner_reduce"):
            link = distributed.link()  # measured by all leaders together
            if distributed.rank() == 0:
                self._choice = RouteChoice(link, len(set(distributed.hosts())))
        self._choosing = tf.Variable(self._choice is not None, trainable=False)

    def run(self, update: UpdateRef, numbers: StepNumbers) -> None:
        """Merges what this host's ranks posted, exchanges it, and applies what all hosts say."""
        message, splits, route = table_ops.merge_host(update, self._next_route)
        messages = tf.cond(
            tf.equal(route, OWNER_REDUCE),
            lambda: self._owner_reduce(update, message, splits),
            lambda: distributed.gather_from_hosts(message, f"{self._name}.messages"),
        )
        vote, complaint, stats = table_ops.stage_update(update, messages)
        complaints = tf.cond(
            vote,
            lambda: distributed.gather_from_hosts(complaint, f"{self._name}.complaints"),
            lambda: complaint,
        )
        table_ops.commit_update(update, complaints, numbers)
        if self._choice is not None:
            words = tf.size(messages, tf.int64)
            tf.cond(
                self._choosing,
                lambda: tf.py_function(self._look, [stats, words], tf.int64),
                lambda: tf.constant(0, tf.int64),
            )

    def _owner_reduce(self, update: UpdateRef, message: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
        shares = distributed.scatter_to_hosts(message, splits, f"{self._name}.shares")
        merged = table_ops.merge_owned(update, shares)
        return distributed.gather_from_hosts(merged, f"{self._name}.merged")

    def _look(self, stats: tf.Tensor, words: tf.Tensor) -> np.int64:
        """Shows the choice one step; between two steps, so variables may be set."""
        assert self._choice is not None
        line = self._choice.add(table_ops.ExchangeStats(*stats.numpy().tolist()), int(words))
        self._next_route.assign(self._choice.route)
        if line:
            _log.info(line)
            self._choosing.assign(False)
        return np.int64(0)
