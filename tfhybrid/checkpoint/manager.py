"""Manager of a directory of checkpoints of one model, written while training continues."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._deprecated import renamed_arguments, renamed_attributes
from tfhybrid.checkpoint import best, lineage, storage
from tfhybrid.checkpoint.best import Best
from tfhybrid.checkpoint.manifest import BaseEntry
from tfhybrid.checkpoint.restoring import restore_checkpoint
from tfhybrid.checkpoint.saving import ModelSnapshot, together
from tfhybrid.checkpoint.stored import steps
from tfhybrid.data.position import AnyPosition
from tfhybrid.errors import CheckpointError, ConfigError

_log = logging.getLogger("tfhybrid.checkpoint")


@renamed_attributes(full_every="full_every_saves")
class CheckpointManager:
    """Manager of a model's checkpoints, for custom training loops.

    A save pauses training only to copy the dense part. The leaders of all hosts write the tables on
    background threads; a row that changes meanwhile is copied first. Every rank creates a manager
    and calls the same methods, on the training thread.

    With `full_every_saves`, the other saves are *deltas*: the rows that were changed or added since
    the previous save. Restoring a delta needs the saves before it, back to the last one with all
    rows.

    Args:
        model: Model, built, and compiled with a `tfhybrid.DistributedOptimizer`.
        directory: Directory of the checkpoints, each in its own folder: a path that all hosts see,
            or a URL that `tf.io.gfile` supports.
        max_to_keep: Number of newest checkpoints to keep, with those that they depend on. Default
            3, minimum 1. `None` keeps all.
        background: Whether `save` returns while files are still being written. Default: yes.
        full_every_saves: Number of saves of which one has all rows. Default 1: every save. The
            first save of a job that did not restore from this manager also has all rows, and so has
            the save after a failed one.

    Raises:
        ConfigError: `max_to_keep` or `full_every_saves` is out of range.

    Example:

    ```python
    manager = tfhybrid.checkpoint.CheckpointManager(model, "checkpoints/")
    position = manager.restore()
    for step, batch in enumerate(batches.dataset(*position)):
        train_step(batch)
        if step % 1000 == 999:
            manager.save(tfhybrid.data.Position(position.epoch, position.step + step + 1))
    manager.wait()
    ```
    """

    @renamed_arguments(full_every="full_every_saves")
    def __init__(
        self,
        model: keras.Model,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = 3,
        background: bool = True,
        full_every_saves: int = 1,
    ) -> None:
        if max_to_keep is not None and max_to_keep < 1:
            raise ConfigError(f"max_to_keep must be at least 1, or None. Received: {max_to_keep}")
        if full_every_saves < 1:
            raise ConfigError(f"full_every_saves must be at least 1. Received: {full_every_saves}")
        self.model = model
        self.directory = storage.location(directory)
        self.max_to_keep = max_to_keep
        self.background = background
        self.full_every_saves = full_every_saves
        # On rank 0: the base of the next delta. Set by the thread, and read after the thread has
        # ended.
        self._base: BaseEntry | None = None
        self._thread: threading.Thread | None = None
        self._failure: CheckpointError | None = None

    @property
    def busy(self) -> bool:
        """Whether this rank is writing files now."""
        return self._thread is not None and self._thread.is_alive()

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, oldest first.

        Raises:
            OSError: The directory exists and cannot be read.
        """
        return steps(self.directory)

    def best(self) -> Best | None:
        """Returns the best checkpoint, or `None` if none is recorded or it no longer exists.

        Raises:
            CheckpointError: The record is damaged.
            OSError: The directory or the record cannot be read.
        """
        record = best.read(self.directory)
        return record if record is not None and record.step in self.steps() else None

    def begun(self) -> bool:
        """Returns whether this job has saved into the directory, or restored from it.

        Every rank must call it.
        """
        return bool(distributed.broadcast_object(lineage.is_begun(self.directory)))

    def check_directory(self, *, fresh: bool) -> None:
        """Checks that the job may save into the directory; every rank must call it.

        Args:
            fresh: Whether to move the checkpoints of other jobs aside.

        Raises:
            CheckpointError: On all ranks: the directory has checkpoints that this job has neither
                saved nor restored from; or, with `fresh`, they cannot be moved.
            OSError: On rank 0: the directory cannot be read.
        """

        def check() -> None:
            if distributed.rank() == 0:
                if fresh:
                    lineage.move_aside(self.directory)
                lineage.check(self.directory)

        together(check)

    @distributed.call("checkpoint.save")
    def save(self, position: AnyPosition, *, best_by: tuple[str, float] | None = None) -> None:
        """Saves the model between two steps, after waiting for the previous save.

        Every rank must call it.

        If a save fails while training continues, the error is logged and kept for `wait`, which
        raises it unless a later save succeeds.

        Args:
            position: Position at which training will continue.
            best_by: Name and value of the metric by which this is the best checkpoint so far. It is
                kept until another one is the best, regardless of `max_to_keep`. Default: `None`, it
                is not the best.

        Raises:
            CheckpointError: On all ranks, if the model cannot be saved; without `background`, also
                if writing failed. Existing checkpoints stay.
            ConfigError: On all ranks: the ranks are not at the same step, their learning rates
                differ, or the position is not a JSON object.
        """
        self._join()
        last = self._base
        base = last if last is not None and last.sequence + 1 < self.full_every_saves else None
        track = self.full_every_saves > 1
        snapshot = ModelSnapshot(self.model, self.directory, position, base=base, track=track)
        pin = None if best_by is None else Best(snapshot.step, *best_by)
        self._thread = threading.Thread(target=self._write, args=(snapshot, pin), name="checkpoint")
        self._thread.start()
        if not self.background:
            self.wait()

    @distributed.call("CheckpointManager.wait")
    def wait(self) -> None:
        """Waits until the last save is on disk. Every rank must call it.

        Raises:
            CheckpointError: On all ranks, if writing failed on one and no later save succeeded
                there.
        """
        together(self._raise_failure)

    def restore(self, step: int | None = None) -> Any:
        """Restores the model's weights, optimizer and tables; every rank must call it.

        Resumes from memory instead, in a job with `resume="memory"` whose last run left its state
        there.

        Args:
            step: Step of the checkpoint. Default: the newest.

        Returns:
            The position at which training continues: the saved one, or `Position(0, 0)` if there
            is no checkpoint and `step` is not given.

        Raises:
            CheckpointError: On all ranks, if it cannot be restored. Nothing was changed, unless
                loading itself failed after all checks.
            ConfigError: The job has `resume="memory"`, and the model no
                `tfhybrid.DistributedOptimizer`.
            StoreError: On all ranks, with `resume="memory"`: a table cannot be opened, or a rank
                has no memory for its state.
            OSError: The directory cannot be read.
            NotInitializedError: `tfhybrid.init()` was not called.
        """
        self._join()
        restored = restore_checkpoint(
            self.model, self.directory, step=step, track=self.full_every_saves > 1
        )
        self._base = restored.base
        return restored.position

    def _write(self, snapshot: ModelSnapshot, pin: Best | None) -> None:
        self._base = None
        try:
            self._base = snapshot.write(self.max_to_keep, pin)
            self._failure = None
        except CheckpointError as error:
            _log.error("%s Training continues.", error)
            self._failure = error

    def _raise_failure(self) -> None:
        self._join()
        if self._failure is not None:
            raise self._failure

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
