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
from tfhybrid.callbacks import fit_start
from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.callbacks.stop_signals import StopSignals
from tfhybrid.checkpoint import broken_epoch
from tfhybrid.data.position import Position, told
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
    checkpoint was written.

    With `resume=True`, the same script starts a job and resumes it. When `fit` begins, the newest
    checkpoint is restored, if there is one. `fit` then finishes the epoch that the job did not
    complete, with the samples that are left of it, and goes on with the next ones. It needs
    `tfhybrid.data.Batches` or `FileBatches`, given to `fit` themselves. Batch size and number of
    ranks may differ from those of the earlier run (`Batches.at`). Metrics of the first epoch are
    those of its last steps.

    Without `resume` and `fresh`, `fit` refuses to begin in a directory that has checkpoints, unless
    `tfhybrid.checkpoint.restore(model, directory)` was called, which returns the position in the
    data at which a loop of your own resumes.

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
        resume: Whether to resume where the job stopped. `"memory"` requires a job that resumes from
            memory if it can, `tfhybrid.init(job="NAME", resume="memory")`, and else from the newest
            checkpoint; `callbacks.HotRestart` is not needed then. Defaults to false.
        fresh: Whether to begin anew in a directory that has checkpoints. They are moved into a new
            folder `before-1`, `before-2` and so on in it; nothing is deleted. Defaults to false.

    Raises:
        ConfigError: `resume` and `fresh` are both set; `resume` is set with Keras 2; `save_freq`,
            `max_to_keep` or `full_every_saves` is out of range; `monitor`, `mode` and
            `save_best_only` cannot be combined; when training begins, the data cannot resume where
            the job stopped, or `save_freq` is not a multiple of the model's `steps_per_execution`;
            or, when an epoch ends, its logs lack the monitor.
        CheckpointError: On all ranks: when training begins, if the directory has checkpoints of
            another job, or one cannot be restored; at a save, if the model cannot be saved, because
            another job saves into the directory, say; when `fit` ends, if the last checkpoint could
            not be written. The previous one stays.
        SystemExit: On all ranks, after SIGTERM or SIGINT.

    Example:

    ```python
    batches = tfhybrid.data.Batches(clicks, 512, seed=1)
    save = tfhybrid.callbacks.Checkpoint("checkpoints/", save_freq=1000, resume=True)
    model.fit(batches, epochs=10, callbacks=[save])
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
        resume: bool | str = False,
        fresh: bool = False,
    ) -> None:
        super().__init__()
        self.directory = os.fspath(directory)
        self.monitor = monitor
        self.mode = mode
        self.save_best_only = save_best_only
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.full_every_saves = full_every_saves
        self.resume = resume
        self.fresh = fresh
        self._position = Position(0, 0)
        self._first = Position(0, 0)  # position at which the epoch begins
        self._resumed: Position | None = None  # where `fit` must begin, until it has
        self._short_epoch = fit_start.ShortEpoch()
        self._saved_step = 0  # the optimizer's step that is already saved
        self._signals: StopSignals | None = None
        self._best: float | None = None  # equal on all ranks
        self._manager: checkpoint.CheckpointManager | None = None
        self._check_arguments()

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
        with distributed.call("callbacks.Checkpoint at the start of training"):
            if self.resume:
                self._resume(self._manager)
            self._manager.check_directory(fresh=self.fresh)
            if self.monitor is not None:
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
        self._short_epoch.end()
        if self._resumed is not None:  # no epoch was left
            self._resumed = None
            fit_start.begin_fit_in_epoch(self.model, 0)
        number = self._signals.at_end() if self._signals is not None else None
        self._finish(number)

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._first = self._position = broken_epoch.begin_epoch(self.model, epoch)
        self._check_resumed(epoch)
        if self.resume:
            fit_start.note_in_memory(self.model, self._position)

    @override
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._short_epoch.check(batch)
        super().on_train_batch_begin(batch, logs)
        if self.resume:
            fit_start.note_in_memory(self.model)

    @override
    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._step is not None and not getattr(self._step.fit.progress.data, "is_read", True):
            raise ConfigError(
                "fit reads other data than those that it opened first: give each fit its own"
            )
        # With steps_per_execution, several steps end at once, so the position is set from `batch`.
        self._position = self._first.advanced(batch)
        super().on_train_batch_end(batch, logs)

    @override
    def after_step(self) -> None:
        # Counts the job's steps, so the number is the same on a rank that had fewer batches.
        self._position = self._position.advanced(1)
        if self._has_waiting_gradients():
            return
        if isinstance(self.save_freq, int):
            saves = int(self.model.optimizer.iterations) // self.save_freq
            if saves > self._saved_step // self.save_freq:
                self._save(self._position)
        number = self._signals.after_step() if self._signals is not None else None
        if number is not None:
            self._finish(number)

    @override
    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_begin(logs)
        self._short_epoch.end()

    @override
    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        self._short_epoch.end()
        if not self._stopped_within_epoch():
            self._position = broken_epoch.start_of(self.model, epoch + 1)
        value = self._improved(logs or {})
        if value is not None and self.monitor is not None:
            self._save(self._position, best_by=(self.monitor, value))
        elif self.save_freq == "epoch" and not self.save_best_only:
            self._save(self._position)

    def _check_arguments(self) -> None:
        fit_start.check_keras(self.resume)
        if self.resume and self.fresh:
            raise ConfigError(
                "Checkpoint can continue from the checkpoints of its directory, or move them "
                f"aside, but not both. Received: resume={self.resume!r}, fresh={self.fresh!r}"
            )
        by_steps = isinstance(self.save_freq, int) and self.save_freq >= 1
        kept = self.max_to_keep is None or self.max_to_keep >= 1
        if not ((by_steps or self.save_freq == "epoch") and kept and self.full_every_saves >= 1):
            raise ConfigError(
                "Checkpoint needs save_freq 'epoch' or a number of steps, max_to_keep >= 1 or "
                f"None, and full_every_saves >= 1. Received: save_freq={self.save_freq!r}, "
                f"max_to_keep={self.max_to_keep!r}, full_every_saves={self.full_every_saves!r}"
            )
        if (self.monitor is None) != (self.mode is None) or self.mode not in (None, "min", "max"):
            raise ConfigError(
                "Checkpoint needs a mode for its monitor: 'max' if more is better, as for "
                f"'val_auc', or 'min'. Received: monitor={self.monitor!r}, mode={self.mode!r}"
            )
        if self.save_best_only and (self.monitor is None or self.save_freq != "epoch"):
            raise ConfigError(
                "save_best_only needs a monitor, and save_freq='epoch'. "
                f"Received: monitor={self.monitor!r}, save_freq={self.save_freq!r}"
            )

    def _resume(self, manager: checkpoint.CheckpointManager) -> None:
        if self._step is None:
            raise ConfigError(
                "resume= needs a model compiled with tfhybrid.DistributedOptimizer. "
                f"Received: {self.model.optimizer!r}"
            )
        memory = self.resume == "memory"
        self._resumed = fit_start.resume(
            self.model, manager, self._step.fit.progress.data, memory=memory
        )
        epochs = int(self.params.get("epochs") or 0)
        if self._resumed is not None and self._resumed.epoch >= epochs and distributed.rank() == 0:
            _log.warning(
                "Nothing is left to train: %s has all %d epochs of fit", self.directory, epochs
            )

    def _check_resumed(self, epoch: int) -> None:
        """Checks that `fit` begins where the job stopped, and not where its arguments say."""
        position, self._resumed = self._resumed, None
        if position is None:
            return
        fit_start.begin_fit_in_epoch(self.model, 0)  # the next `fit` begins as it says
        if position.epoch != epoch:
            raise ConfigError(
                f"The job stopped at {told(position)}, so fit must begin with that epoch: leave "
                f"out initial_epoch. Received: fit begins epoch {epoch}"
            )
        if position.step > 0:
            self._short_epoch.begin(self._step.fit.progress.data.steps_per_epoch - position.step)

    def _has_waiting_gradients(self) -> bool:
        """Whether micro-batches wait for their update; a checkpoint does not contain their sums."""
        micro_batches = None if self._step is None else self._step.micro_batches
        return micro_batches is not None and micro_batches.several and micro_batches.waiting > 0

    def _stopped_within_epoch(self) -> bool:
        data = None if self._step is None else self._step.fit.progress.data
        inside = data is not None and self._position.step < data.steps_per_epoch
        return inside and bool(self.model.stop_training)

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
