"""A directory of checkpoints of one model, written while training goes on."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import keras

from tfhybrid import distributed
from tfhybrid.checkpoint.manifest import Position, steps
from tfhybrid.checkpoint.restoring import restore
from tfhybrid.checkpoint.saving import Snapshot
from tfhybrid.errors import CheckpointError, ConfigError, StoreError

_log = logging.getLogger("tfhybrid.checkpoint")


class CheckpointManager:
    """Saves and restores a model, for training loops of one's own.

    A save stops training only for the copy of what is dense. Tables are written by rank 0 on
    threads of its own; a row that changes meanwhile is copied aside first. Every rank makes one
    manager and calls the same methods.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`, and built.
        directory: Where checkpoints are kept, one folder each; common to all hosts.
        max_to_keep: Number of newest checkpoints that are kept. `None` keeps all.
        background: Whether `save` returns while files are still being written.

    Raises:
        ConfigError: `max_to_keep` is out of range.

    Example:

    ```python
    manager = tfhybrid.checkpoint.CheckpointManager(model, "checkpoints/")
    position = manager.restore()
    for step, batch in enumerate(batches.dataset(*position)):
        train_step(batch)
        if step % 1000 == 999:
            manager.save(tfhybrid.checkpoint.Position(position.epoch, position.step + step + 1))
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
    ) -> None:
        if max_to_keep is not None and max_to_keep < 1:
            raise ConfigError(f"max_to_keep is at least 1, or None. Received: {max_to_keep}")
        self.model = model
        self.directory = Path(directory)
        self.max_to_keep = max_to_keep
        self.background = background
        self._thread: threading.Thread | None = None
        self._failure: CheckpointError | None = None

    @property
    def busy(self) -> bool:
        """Whether files are being written right now, on this rank."""
        return self._thread is not None and self._thread.is_alive()

    def steps(self) -> list[int]:
        """Returns the steps of which there is a checkpoint, oldest first."""
        return steps(self.directory)

    def save(self, position: Position) -> None:
        """Saves the model between two steps; first waits for the save before.

        A save that failed while training went on is logged, and kept for `wait`: the next one may
        succeed, and then it is forgotten.

        Args:
            position: Where training will go on.

        Raises:
            CheckpointError: On all ranks, if the model cannot be saved; without `background`, also
                if it could not be written. Checkpoints that there are stay.
        """
        self._join()
        snapshot = Snapshot(self.model, self.directory, position)
        self._thread = threading.Thread(target=self._write, args=(snapshot,), name="checkpoint")
        self._thread.start()
        if not self.background:
            self.wait()

    def wait(self) -> None:
        """Returns when the last save is on disk.

        Raises:
            CheckpointError: On all ranks, if it could not be written.
        """
        try:
            distributed.together(self._raise_failure)
        except StoreError as error:  # of another rank
            raise CheckpointError(str(error)) from error

    def restore(self, step: int | None = None) -> Position:
        """Restores the newest checkpoint, or that of a step; see `tfhybrid.checkpoint.restore`."""
        self._join()
        return restore(self.model, self.directory, step=step)

    def _write(self, snapshot: Snapshot) -> None:
        try:
            snapshot.write(self.max_to_keep)
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
