"""Rows that move to another embedding node while a job trains."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid.job import current_job


class FollowNodes(keras.callbacks.Callback):
    """Moves rows from embedding nodes that drain, and to nodes that have come.

    At the beginning of each epoch, if `tfhybrid nodes drain` or `add` was called. All ranks wait
    while rows are copied; the bits stay those of a run on the same nodes throughout. In jobs
    without nodes it does nothing. While a rank holds batches of data nodes, rows stay where they
    are.

    Example:

    ```python
    callbacks = [tfhybrid.callbacks.BroadcastVariables(), tfhybrid.callbacks.FollowNodes()]
    model.fit(dataset, epochs=100, steps_per_epoch=1000, callbacks=callbacks)
    ```
    """

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Moves what is to move; every rank must call it, between two steps."""
        current_job().follow_nodes()
