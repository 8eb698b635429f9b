"""State of a `fit` that callbacks and checkpoints share with the step of its optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


class StopRequests:
    """Requests of ranks to stop, which they exchange with each step.

    Attributes:
        own: Whether this rank requests to stop, 0 or 1, for the exchange.
    """

    def __init__(self) -> None:
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
        steps_before: Number of steps of the epoch before those of `fit`.
    """

    def __init__(self) -> None:
        self.stop = StopRequests()
        self.callbacks: list[Any] = []
        self.steps_before = 0
        self._joined = False
        self._broken_off: tuple[Any, int] | None = None

    def begin_epoch(self) -> None:
        """Lets the rank join the others again at the end of an epoch."""
        self._joined = False

    def joins_now(self) -> bool:
        """Returns whether the rank has not joined the others in this epoch; true once."""
        joined, self._joined = self._joined, True
        return not joined

    def break_off(self, position: Any, iterations: int) -> None:
        """Records that a restored model resumes within an epoch.

        Args:
            position: Position within the epoch.
            iterations: Number of the optimizer's steps.
        """
        self._broken_off = position, iterations

    def take_broken_off(self) -> tuple[Any, int] | None:
        """Returns the arguments of `break_off`, or `None`, and forgets them."""
        broken_off, self._broken_off = self._broken_off, None
        return broken_off

    @contextlib.contextmanager
    def rest_of_epoch(self, steps_before: int) -> Iterator[None]:
        """Lets `fit` train the rest of an epoch in the block.

        Args:
            steps_before: Number of the epoch's steps that were trained before.
        """
        self._broken_off, self.steps_before = None, steps_before
        try:
            yield
        finally:
            self.steps_before = 0
