"""Base class of callbacks that all ranks run together."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid.checkpoint import broken_epoch
from tfhybrid.errors import ConfigError
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.optimizers.fit_callbacks import refuse_incomplete_savers


class CollectiveCallback(keras.callbacks.Callback):
    """Callback that may use collectives, although ranks may have different numbers of batches.

    At the end of an epoch, before validation, a rank joins the steps of the ranks that still train,
    until all ranks have finished the epoch. `before_step` and `after_step` are called for these
    steps too. A subclass that overrides a hook of Keras must call the hook of this class too.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Registers the callback, so that it also runs in steps without a batch of this rank.

        Called by Keras.

        Raises:
            ConfigError: `fit` was given data of tfhybrid, and another number of steps per epoch.
            UnsupportedError: Another callback would save the model without its tables.
        """
        refuse_incomplete_savers([w for w in self.model.weights if isinstance(w, TableProxy)])
        broken_epoch.begin_fit(self.model, self.params)
        if self._step is not None and self not in self._step.fit.callbacks:
            self._step.fit.callbacks.append(self)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Cancels the registration of `on_train_begin`. Called by Keras."""
        if self._step is not None and self in self._step.fit.callbacks:
            self._step.fit.callbacks.remove(self)

    def check_steps(self, name: str, steps: int) -> None:
        """Checks that all ranks can act together after every `steps` steps.

        Args:
            name: Name of the option, for the error.
            steps: Number of steps between two actions.

        Raises:
            ConfigError: `steps` is not a multiple of the model's `steps_per_execution`. Such a
                model calls the hooks less often than a rank without data, which joins one step at
                a time.
        """
        together = int(getattr(self.model, "steps_per_execution", None) or 1)
        if steps % together:
            raise ConfigError(
                f"{name} must be a multiple of the model's steps_per_execution={together}. "
                f"Received: {steps}"
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Lets this rank join again at the end of this epoch. Called by Keras."""
        broken_epoch.begin_epoch(self.model, epoch)
        if self._step is not None:
            self._step.fit.begin_epoch()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Joins the other ranks before `fit` validates the epoch. Called by Keras."""
        if self._step is not None and self in self._step.fit.callbacks:
            self.join_epoch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Calls `join_epoch`. Called by Keras."""
        self.join_epoch()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Calls `before_step`. Called by Keras."""
        self.before_step()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Calls `after_step`. Called by Keras."""
        self.after_step()

    def before_step(self) -> None:
        """Runs before each step of the job, including steps without samples of this rank."""

    def after_step(self) -> None:
        """Runs after each step of the job, including steps without samples of this rank."""

    def join_epoch(self) -> None:
        """Joins the other ranks' steps until all ranks have finished the epoch; once per epoch."""
        if self._step is not None and self._step.fit.joins_now():
            self._step.join()

    @property
    def _step(self) -> Any:
        """The optimizer's `DistributedStep`, or `None` for an optimizer without one."""
        return getattr(self.model.optimizer, "distributed_step", None)
