"""Moves of rows between embedding nodes while a job trains."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job


class FollowNodes(CollectiveCallback):
    """Callback that moves rows from draining embedding nodes, and to new ones.

    It checks at the beginning of each epoch whether `tfhybrid nodes drain` or `add` was called. All
    ranks wait while rows are copied. The results have the same bits as without a move. In jobs
    without nodes the callback does nothing. Every rank must use it.

    Args:
        every_steps: Number of steps between additional checks. Default: `None`, which checks only
            at the beginning of an epoch. A check costs a message to the metadata node and one among
            the ranks.

    Raises:
        ConfigError: `every_steps` is not a positive number, or when training begins, is not a
            multiple of the model's `steps_per_execution`.
        TfhybridError: On all ranks, at a check: an update has failed, or a node cannot be reached.

    Example:

    ```python
    callbacks = [
        tfhybrid.callbacks.BroadcastVariables(),
        tfhybrid.callbacks.FollowNodes(every_steps=1000),
    ]
    model.fit(dataset, epochs=100, steps_per_epoch=1000000, callbacks=callbacks)
    ```
    """

    def __init__(self, every_steps: int | None = None) -> None:
        super().__init__()
        if every_steps is not None and every_steps < 1:
            raise ConfigError(
                "every_steps must be a number of steps, at least 1, or None. "
                f"Received: {every_steps}"
            )
        self._every_steps = every_steps
        self._checked = 0  # the step of the last check; equal on all ranks

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        if self._every_steps is not None:
            self.check_steps("every_steps", self._every_steps)

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._follow()

    @override
    def after_step(self) -> None:
        if self._every_steps is None:
            return
        if int(self.model.optimizer.iterations) - self._checked >= self._every_steps:
            self._follow()

    def _follow(self) -> None:
        self._checked = int(self.model.optimizer.iterations)
        current_job().access.follow()
