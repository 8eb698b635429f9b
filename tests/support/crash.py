"""An exception out of a callback of `fit`, for runs that break off at a step."""

from __future__ import annotations

from tensorflow import keras


class Crash(keras.callbacks.Callback):
    """Raises `InterruptedError` after a step of the optimizer, counted from 1."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._at = step

    def on_train_batch_end(self, batch, logs=None) -> None:
        if int(self.model.optimizer.iterations) == self._at:
            raise InterruptedError
