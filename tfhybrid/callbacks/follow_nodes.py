"""Rows that move to another embedding node while a job trains."""

from __future__ import annotations

from typing import Any

from tfhybrid.callbacks.joined import Joined
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job


class FollowNodes(Joined):
    """Moves rows from embedding nodes that drain, and to nodes that have come.

    At the beginning of each epoch, if `tfhybrid nodes drain` or `add` was called. All ranks wait
    while rows are copied; the bits stay those of a run on the same nodes throughout. In jobs
    without nodes it does nothing.

    Args:
        every_steps: After how many steps the ranks look, too, whether rows are to move; `None`: at
            the beginning of an epoch alone. A look costs a message to the metadata node and one
            among the ranks.

    Raises:
        ConfigError: `every_steps` is no positive number, or no multiple of the steps that Keras
            executes together.

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
            raise ConfigError(f"every_steps is 1 at least, or None. Received: {every_steps}")
        self._every_steps = every_steps
        self._looked = 0  # the step after which the ranks last looked; the same on all of them

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that all ranks can look after the same steps."""
        super().on_train_begin(logs)
        if self._every_steps is not None:
            self.check_steps("every_steps", self._every_steps)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Moves what is to move; every rank must call it, between two steps."""
        super().on_epoch_begin(epoch, logs)
        self._looked = int(self.model.optimizer.iterations)
        current_job().follow_nodes()

    def after_step(self) -> None:
        """Likewise, after `every_steps` steps of the job."""
        if self._every_steps is None:
            return
        step = int(self.model.optimizer.iterations)
        if step - self._looked >= self._every_steps:
            self._looked = step
            current_job().follow_nodes()
