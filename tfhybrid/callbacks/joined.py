"""Base class of callbacks that use collectives."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid.checkpoint import broken_epoch
from tfhybrid.errors import ConfigError


class Joined(keras.callbacks.Callback):
    """A callback that all ranks run together, although their numbers of batches may differ.

    At the end of an epoch, before validation, a rank joins the steps of the ranks that still train,
    until all have finished the epoch. `before_step` and `after_step` are called for these steps
    too.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Registers the hooks for steps in which this rank has no batch."""
        if self._step is not None and self not in self._step.idle_callbacks:
            self._step.idle_callbacks.append(self)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Undoes `on_train_begin`."""
        if self._step is not None and self in self._step.idle_callbacks:
            self._step.idle_callbacks.remove(self)

    def check_steps(self, name: str, steps: int) -> None:
        """Checks how often all ranks do something together.

        Args:
            name: Of the option.
            steps: Between two times.

        Raises:
            ConfigError: Some ranks would see other steps than a rank without data, which takes
                part in one step at a time.
        """
        together = int(getattr(self.model, "steps_per_execution", None) or 1)
        if steps % together:
            raise ConfigError(
                f"{name} is a multiple of the model's steps_per_execution={together}. "
                f"Received: {steps}"
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Records at which step the epoch begins."""
        broken_epoch.begin_epoch(self.model, epoch)
        if self._step is not None:
            self._step.joined = False

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Joins the other ranks before the epoch is validated."""
        if self._step is not None and self in self._step.idle_callbacks:
            self.join_epoch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Joins the other ranks, unless an earlier callback has done so."""
        self.join_epoch()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Calls `before_step`."""
        self.before_step()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Ends a step."""
        self.after_step()

    def before_step(self) -> None:
        """Called before each step of the job."""

    def after_step(self) -> None:
        """Called after each step of the job."""

    def join_epoch(self) -> None:
        """Joins the steps of the ranks that still train; once per epoch."""
        if self._step is not None and not self._step.joined:
            self._step.join()
            self._step.joined = True

    @property
    def _step(self) -> Any:
        """The optimizer's `DistributedStep`, or `None` for an optimizer without one."""
        return getattr(self.model.optimizer, "distributed_step", None)
