"""The position in the data, recorded while `fit` runs, for a restart from memory."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid.callbacks import fit_start
from tfhybrid.checkpoint import broken_epoch


class HotRestart(keras.callbacks.Callback):
    """Callback that records the position in the data at every step, for `init(resume="memory")`.

    `callbacks.Checkpoint(directory, resume="memory")` does this too, and resumes. Without it,
    `tfhybrid.checkpoint.restore(model, directory)` in the next run then returns exactly that
    position. The states of Python's and NumPy's random generators are recorded too. In other jobs
    the callback does nothing.

    Raises:
        ConfigError: When training begins: `fit` does not read whole epochs of the data.

    Example:

    ```python
    tfhybrid.init(job="ctr", resume="memory")
    ...
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    callbacks = [tfhybrid.callbacks.HotRestart(), tfhybrid.callbacks.Checkpoint("checkpoints/")]
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

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Finds the data that `fit` reads. Called by Keras.

        Raises:
            ConfigError: `fit` does not read whole epochs of the data.
        """
        broken_epoch.begin_fit(self.model, self.params)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Records the position at which the epoch begins. Called by Keras."""
        fit_start.note_in_memory(self.model, broken_epoch.begin_epoch(self.model, epoch))

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Records the states of this process's random generators. Called by Keras."""
        fit_start.note_in_memory(self.model)
