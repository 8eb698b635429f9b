"""State of a `fit` that callbacks and checkpoints share with the step of its optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhybrid.optimizers.fit_progress import FitProgress


class StopRequests:
    """Requests of ranks to stop, which they exchange with each step.

    Attributes:
        own: Whether this rank requests to stop, 0 or 1, for the exchange.
    """

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self.own = tf.Variable(0.0, trainable=False)
            self._ranks = tf.Variable(0.0, trainable=False)

    def request(self) -> None:
        """Requests that all ranks stop after a later step. A signal handler may call it."""
        with tf.init_scope():  # a step may be traced meanwhile
            self.own.assign(1.0)

    def withdraw(self) -> None:
        """Withdraws the request of this rank."""
        self.own.assign(0.0)

    def receive(self, ranks: tf.Tensor) -> None:
        """Records the number of ranks that requested to stop in a step. Part of its graph."""
        self._ranks.assign(ranks)

    @property
    def any_rank(self) -> bool:
        """Whether a rank requested to stop in the last step: the same on all ranks."""
        return bool(self._ranks > 0)


class FitState:
    """State of a running `fit`: its epoch, its callbacks and its end. One thread uses it.

    Attributes:
        stop: Requests of ranks to stop.
        callbacks: Callbacks whose `before_step` and `after_step` also run around each step that
            this rank joins without samples.
        progress: Progress in the data.
    """

    def __init__(self) -> None:
        self.stop = StopRequests()
        self.callbacks: list[Any] = []
        self.progress = FitProgress()
        self._joined = False

    def begin_epoch(self) -> None:
        """Lets the rank join the others again at the end of an epoch."""
        self._joined = False

    def joins_now(self) -> bool:
        """Returns whether the rank has not joined the others in this epoch; true once."""
        joined, self._joined = self._joined, True
        return not joined
