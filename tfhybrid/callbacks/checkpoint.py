"""Checkpoints while `fit` runs."""

from __future__ import annotations

import logging
import math
import os
import signal
from typing import Any

from typing_extensions import override

from tfhybrid import checkpoint, distributed
from tfhybrid._deprecated import renamed_arguments, renamed_attributes
from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.callbacks.stop_signals import StopSignals
from tfhybrid.checkpoint import broken_epoch
from tfhybrid.data.position import Position
from tfhybrid.errors import ConfigError

_log = logging.getLogger("tfhybrid.checkpoint")

# What a rank sees of Ctrl-C depends on who started it.
_CAUSES = {
    signal.SIGINT: "Ctrl-C (SIGINT)",
    signal.SIGTERM: "SIGTERM, which horovodrun also sends at Ctrl-C",
}


@renamed_attributes(full_every="full_every_saves")
class Checkpoint(CollectiveCallback):
    """Callback that saves dense weights, optimizer, tables and position, all of the same step.

    Every rank must use it. Training continues while the files are written. If writing fails, the
    error is logged and training continues; the error is raised when `fit` ends, unless a later
    checkpoint was written. `tfhybrid.checkpoint.restore(model, directory)` restores a checkpoint
    and returns the position in the data at which to resume.

    The last steps are saved when `fit` ends, for any `save_freq`. After SIGTERM or SIGINT (Ctrl-C)
    on any rank, the current step is saved, and the program ends on all ranks with status
    128 + signal, as in a shell. During validation the signal waits for the next step. A second
    signal ends the process at once.

    Args:
        directory: Directory of checkpoints, each in its own folder: a path that all hosts see, or a
            URL that `tf.io.gfile` supports.
        save_freq: Number of steps between checkpoints, or `"epoch"`, the default.
        max_to_keep: Number of newest checkpoints to keep, in addition to those that they depend on.
            Defaults to 3; `None` keeps all.
        full_every_saves: Number of checkpoints among which one has all rows; the others are deltas
            (see `tfhybrid.checkpoint.CheckpointManager`). Defaults to 1.
        monitor: Name in an epoch's logs, such as `"val_auc"` of `callbacks.Evaluate`, which must
            come before this callback. The best epoch is saved and pinned: `max_to_keep` never
            removes it, and `tfhybrid.checkpoint.restore_best` restores it. A later run in the same
            directory compares with it.
        mode: Direction of the monitor: `"max"` if more is better, or `"min"`. Rank 0's value
            decides, so use a metric over the samples of all ranks.
        save_best_only: Whether to save only after a new best epoch or a signal. Defaults to false.

    Raises:
        ConfigError: `save_freq`, `max_to_keep` or `full_every_saves` is out of range; `monitor`,
            `mode` and `save_best_only` cannot be combined; when training begins, `save_freq` is not
            a multiple of the model's `steps_per_execution`; or, when an epoch ends, its logs lack
            the monitor.
        CheckpointError: On all ranks: at a save, if the model cannot be saved, because another job
            saves into the directory, say; when `fit` ends, if the last checkpoint could not be
            written. The previous one stays.
        SystemExit: On all ranks, after SIGTERM or SIGINT.

    Example:

    ```python
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    callbacks = [tfhybrid.callbacks.Checkpoint("checkpoints/")]
    position = tfhybrid.checkpoint.finish_epoch(model, batches, position, callbacks=callbacks)
    model.fit(
        batches.dataset(position.epoch, epochs=None),
        initial_epoch=position.epoch,
        epochs=10,
        steps_per_epoch=batches.steps_per_epoch,
        callbacks=callbacks,
    )
    ```
    """

    @renamed_arguments(full_every="full_every_saves")
    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        save_freq: str | int = "epoch",
        max_to_keep: int | None = 3,
        full_every_saves: int = 1,
        monitor: str | None = None,
        mode: str | None = None,
        save_best_only: bool = False,
    ) -> None:
        super().__init__()
        by_steps = isinstance(save_freq, int) and save_freq >= 1
        kept = max_to_keep is None or max_to_keep >= 1
        if not ((by_steps or save_freq == "epoch") and kept and full_every_saves >= 1):
            raise ConfigError(
                "Checkpoint needs save_freq 'epoch' or a number of steps, max_to_keep >= 1 or "
                f"None, and full_every_saves >= 1. Received: save_freq={save_freq!r}, "
                f"max_to_keep={max_to_keep!r}, full_every_saves={full_every_saves!r}"
            )
        if (monitor is None) != (mode is None) or mode not in (None, "min", "max"):
            raise ConfigError(
                "Checkpoint needs a mode for its monitor: 'max' if more is better, as for "
                f"'val_auc', or 'min'. Received: monitor={monitor!r}, mode={mode!r}"
            )
        if save_best_only and (monitor is None or save_freq != "epoch"):
            raise ConfigError(
                "save_best_only needs a monitor, and save_freq='epoch'. "
                f"Received: monitor={monitor!r}, save_freq={save_freq!r}"
            )
        self.directory = os.fspath(directory)
        self.monitor = monitor
        self.mode = mode
        self.save_best_only = save_best_only
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.full_every_saves = full_every_saves
        self._position = Position(0, 0)
        self._steps_before = 0  # steps of this epoch in the previous run
        self._saved_step = 0  # the optimizer's step that is already saved
        self._signals: StopSignals | None = None
        self._best: float | None = None  # equal on all ranks
        self._manager: checkpoint.CheckpointManager | None = None

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        if isinstance(self.save_freq, int):
            self.check_steps("save_freq", self.save_freq)
        self._manager = checkpoint.CheckpointManager(
            self.model,
            self.directory,
            max_to_keep=self.max_to_keep,
            full_every_saves=self.full_every_saves,
        )
        if self.monitor is not None:
            with distributed.call("callbacks.Checkpoint at the start of training"):
                best = distributed.broadcast_object(distributed.together(self._manager.best))
            same = best is not None and best.monitor == self.monitor
            self._best = best.value if same else None
        self._saved_step = int(self.model.optimizer.iterations)
        if self._step is not None:
            self._signals = StopSignals(self._step.fit.stop)
            self._signals.take()

    @override
    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_end(logs)
        number = self._signals.at_end() if self._signals is not None else None
        self._finish(number)

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._position = broken_epoch.begin_epoch(self.model, epoch)
        self._steps_before = self._position.step

    @override
    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # With steps_per_execution, several steps end at once, so the position is set from `batch`.
        self._position = Position(self._position.epoch, self._steps_before + batch)
        super().on_train_batch_end(batch, logs)

    @override
    def after_step(self) -> None:
        # Counts the job's steps, so the number is the same on a rank that had fewer batches.
        self._position = Position(self._position.epoch, self._position.step + 1)
        if (
            isinstance(self.save_freq, int)
            and int(self.model.optimizer.iterations) % self.save_freq == 0
        ):
            self._save(self._position)
        number = self._signals.after_step() if self._signals is not None else None
        if number is not None:
            self._finish(number)

    @override
    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        self._position = Position(epoch + 1, 0)
        value = self._improved(logs or {})
        if value is not None and self.monitor is not None:
            self._save(self._position, best_by=(self.monitor, value))
        elif self.save_freq == "epoch" and not self.save_best_only:
            self._save(self._position)

    def _improved(self, logs: dict[str, Any]) -> float | None:
        """Returns the monitor's value if it is the best so far, else `None`; equal on all ranks."""
        if self.monitor is None:
            return None
        with distributed.call("callbacks.Checkpoint at the end of an epoch"):
            value = distributed.broadcast_object(logs.get(self.monitor))
        if value is None:
            raise ConfigError(
                "Checkpoint's monitor must be a name in the logs of an epoch. callbacks.Evaluate, "
                "which writes metrics over all ranks, must come before Checkpoint. "
                f"Received: monitor={self.monitor!r}, logs of {sorted(logs)}"
            )
        sign = 1.0 if self.mode == "max" else -1.0
        # NaN is neither better nor worse than any value.
        if not (self._best is None or sign * value > sign * self._best) or not math.isfinite(value):
            return None
        self._best = float(value)
        return self._best

    def _save(self, position: Position, *, best_by: tuple[str, float] | None = None) -> None:
        if self._manager is not None:
            self._manager.save(position, best_by=best_by)
            self._saved_step = int(self.model.optimizer.iterations)

    def _finish(self, number: int | None) -> None:
        """Saves unsaved steps, waits until they are written, and restores the signal handlers.

        Args:
            number: Signal that a rank received, or `None`.

        Raises:
            SystemExit: A rank received a signal.
            CheckpointError: The last checkpoint could not be written.
        """
        step = int(self.model.optimizer.iterations)
        try:
            if step != self._saved_step and (number is not None or not self.save_best_only):
                self._save(self._position)
            if self._manager is not None:
                self._manager.wait()
        finally:
            if self._signals is not None:
                self._signals.give_back()
        if number is not None:
            if distributed.rank() == 0:
                cause = _CAUSES.get(signal.Signals(number), "a signal")
                _log.warning("Stopped by %s; step %d is saved in %s", cause, step, self.directory)
            raise SystemExit(128 + number)
