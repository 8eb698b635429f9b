"""Checkpoints while `fit` runs."""

from __future__ import annotations

import os
from typing import Any

from tfhybrid import checkpoint
from tfhybrid.callbacks.joined import Joined
from tfhybrid.data.position import Position
from tfhybrid.errors import ConfigError


class Checkpoint(Joined):
    """Saves dense weights, optimizer, tables and position, all of one step.

    Training goes on while the files are written. Where one cannot be, an error is logged and
    training goes on too; it is raised when `fit` ends, unless a later checkpoint was written.
    `tfhybrid.checkpoint.restore(model, directory)` brings them back and says where to go on.

    Args:
        directory: Where checkpoints are kept, one folder each: a path that all hosts see, or a
            URL that `tf.io.gfile` reaches.
        save_freq: `"epoch"`, or a number of steps.
        max_to_keep: Number of newest checkpoints that are kept, with those that they need. `None`
            keeps all.
        full_every: Every how many checkpoints has all rows; those between are deltas (see
            `tfhybrid.checkpoint.CheckpointManager`).

    Raises:
        ConfigError: `save_freq`, `max_to_keep` or `full_every` is out of range.
        CheckpointError: On all ranks when `fit` ends, if the last checkpoint could not be written;
            the one before stays.

    Example:

    ```python
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    model.fit(
        batches.dataset(position.epoch, epochs=None),
        initial_epoch=position.epoch,
        epochs=10,
        steps_per_epoch=batches.steps_per_epoch,
        callbacks=[tfhybrid.callbacks.Checkpoint("checkpoints/")],
    )
    ```
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        save_freq: str | int = "epoch",
        max_to_keep: int | None = 3,
        full_every: int = 1,
    ) -> None:
        super().__init__()
        by_steps = isinstance(save_freq, int) and save_freq >= 1
        kept = max_to_keep is None or max_to_keep >= 1
        if not ((by_steps or save_freq == "epoch") and kept and full_every >= 1):
            raise ConfigError(
                "Checkpoint wants save_freq 'epoch' or a number of steps, max_to_keep >= 1 or "
                f"None, and full_every >= 1. Received: save_freq={save_freq!r}, "
                f"max_to_keep={max_to_keep!r}, full_every={full_every!r}"
            )
        self.directory = os.fspath(directory)
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.full_every = full_every
        self._position = Position(0, 0)
        self._manager: checkpoint.CheckpointManager | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Looks at the model."""
        super().on_train_begin(logs)
        self._manager = checkpoint.CheckpointManager(
            self.model,
            self.directory,
            max_to_keep=self.max_to_keep,
            full_every=self.full_every,
        )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Waits until the last checkpoint is written."""
        super().on_train_end(logs)
        if self._manager is not None:
            self._manager.wait()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes the epoch."""
        super().on_epoch_begin(epoch, logs)
        self._position = Position(epoch, 0)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Ends a step, or as many as Keras does in one execution."""
        self._position = Position(self._position.epoch, batch)
        super().on_train_batch_end(batch, logs)

    def after_step(self) -> None:
        """Saves after every `save_freq` steps."""
        # Steps of the job: as many on a rank that had fewer batches.
        self._position = Position(self._position.epoch, self._position.step + 1)
        if (
            isinstance(self.save_freq, int)
            and int(self.model.optimizer.iterations) % self.save_freq == 0
        ):
            self._save(self._position)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves after every epoch, if asked to."""
        super().on_epoch_end(epoch, logs)
        if self.save_freq == "epoch":
            self._save(Position(epoch + 1, 0))

    def _save(self, position: Position) -> None:
        if self._manager is not None:
            self._manager.save(position)
