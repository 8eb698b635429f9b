"""A directory of checkpoints of one model, written while training goes on."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from tensorflow import keras

from tfhybrid.checkpoint import best, storage
from tfhybrid.checkpoint.best import Best
from tfhybrid.checkpoint.manifest import Base
from tfhybrid.checkpoint.restoring import restore_checkpoint
from tfhybrid.checkpoint.saving import Snapshot, together
from tfhybrid.checkpoint.stored import steps
from tfhybrid.data.position import AnyPosition
from tfhybrid.errors import CheckpointError, ConfigError

_log = logging.getLogger("tfhybrid.checkpoint")


class CheckpointManager:
    """Saves and restores a model, for training loops of one's own.

    A save stops training only for the copy of what is dense. Tables are written by the leaders of
    all hosts on threads of their own; a row that changes meanwhile is copied aside first. Every
    rank makes one manager and calls the same methods.

    With `full_every`, the saves between are *deltas*: the rows that changed or came since the save
    before. Restoring one needs those before it, back to the last with all rows.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`, and built.
        directory: Where checkpoints are kept, one folder each: a path that all hosts see, or a
            URL that `tf.io.gfile` reaches.
        max_to_keep: Number of newest checkpoints that are kept, with those that they need. `None`
            keeps all.
        background: Whether `save` returns while files are still being written.
        full_every: Every how many saves has all rows; 1 for all of them. A new job's first one has,
            unless it restored from this manager, and so has the one after a save that failed.

    Raises:
        ConfigError: `max_to_keep` or `full_every` is out of range.

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

    def __init__(
        self,
        model: keras.Model,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = 3,
        background: bool = True,
        full_every: int = 1,
    ) -> None:
        if max_to_keep is not None and max_to_keep < 1:
            raise ConfigError(f"max_to_keep is at least 1, or None. Received: {max_to_keep}")
        if full_every < 1:
            raise ConfigError(f"full_every is at least 1. Received: {full_every}")
        self.model = model
        self.directory = storage.location(directory)
        self.max_to_keep = max_to_keep
        self.background = background
        self.full_every = full_every
        # Rank 0's: what the next delta adds to. Written by the thread, read when it has ended.
        self._base: Base | None = None
        self._thread: threading.Thread | None = None
        self._failure: CheckpointError | None = None

    @property
    def busy(self) -> bool:
        """Whether files are being written right now, on this rank."""
        return self._thread is not None and self._thread.is_alive()

    def steps(self) -> list[int]:
        """Returns the steps of which there is a checkpoint, oldest first."""
        return steps(self.directory)

    def best(self) -> Best | None:
        """Returns which checkpoint is the best, as far as it is noted and still there."""
        found = best.read(self.directory)
        return found if found is not None and found.step in self.steps() else None

    def save(self, position: AnyPosition, *, best_by: tuple[str, float] | None = None) -> None:
        """Saves the model between two steps; first waits for the save before.

        A save that failed while training went on is logged, and kept for `wait`: the next one may
        succeed, and then it is forgotten.

        Args:
            position: Where training will go on.
            best_by: That it is the best checkpoint by now: the name of a metric, and its value. It
                stays until another one is, whatever `max_to_keep` is.

        Raises:
            CheckpointError: On all ranks, if the model cannot be saved; without `background`, also
                if it could not be written. Checkpoints that there are stay.
        """
        self._join()
        last = self._base
        base = last if last is not None and last.sequence + 1 < self.full_every else None
        track = self.full_every > 1
        snapshot = Snapshot(self.model, self.directory, position, base=base, track=track)
        pin = None if best_by is None else Best(snapshot.step, *best_by)
        self._thread = threading.Thread(target=self._write, args=(snapshot, pin), name="checkpoint")
        self._thread.start()
        if not self.background:
            self.wait()

    def wait(self) -> None:
        """Returns when the last save is on disk.

        Raises:
            CheckpointError: On all ranks, if it could not be written.
        """
        together(self._raise_failure)

    def restore(self, step: int | None = None) -> Any:
        """Restores the newest checkpoint, or that of a step; see `tfhybrid.checkpoint.restore`."""
        self._join()
        restored = restore_checkpoint(
            self.model, self.directory, step=step, track=self.full_every > 1
        )
        self._base = restored.base
        return restored.position

    def _write(self, snapshot: Snapshot, pin: Best | None) -> None:
        self._base = None
        try:
            self._base = snapshot.write(self.max_to_keep, pin)
            self._failure = None
        except CheckpointError as error:
            _log.error("%s Training goes on.", error)
            self._failure = error

    def _raise_failure(self) -> None:
        self._join()
        if self._failure is not None:
            raise self._failure

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
