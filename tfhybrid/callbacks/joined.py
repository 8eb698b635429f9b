"""What callbacks have in common that do something together with all ranks."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid.checkpoint import broken_epoch


class Joined(keras.callbacks.Callback):
    """A callback of all ranks, which may have different numbers of batches.

    At the end of an epoch, and before it is validated, a rank takes part in the steps of those that
    still train, until all have come there. What a subclass does around every step, it does in
    `before_step` and `after_step`: they are called for those steps too.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Has itself called around the steps that this rank has no batch for."""
        if self._step is not None and self not in self._step.idle_callbacks:
            self._step.idle_callbacks.append(self)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Undoes `on_train_begin`."""
        if self._step is not None and self in self._step.idle_callbacks:
            self._step.idle_callbacks.remove(self)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes that there are steps to come, and where they begin."""
        broken_epoch.begin_epoch(self.model, epoch)
        if self._step is not None:
            self._step.joined = False

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Joins the other ranks before the epoch is validated."""
        if self._step is not None and self in self._step.idle_callbacks:
            self.join_epoch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Joins the other ranks, unless a callback before this one has."""
        self.join_epoch()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Begins a step."""
        self.before_step()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Ends a step."""
        self.after_step()

    def before_step(self) -> None:
        """What is to be done before each step of the job."""

    def after_step(self) -> None:
        """What is to be done after each step of the job."""

    def join_epoch(self) -> None:
        """Takes part in the steps of ranks that still train; once an epoch."""
        if self._step is not None and not self._step.joined:
            self._step.join()
            self._step.joined = True

    @property
    def _step(self) -> Any:
        """The optimizer's `DistributedStep`; `None` where it is an optimizer of one rank."""
        return getattr(self.model.optimizer, "distributed_step", None)
