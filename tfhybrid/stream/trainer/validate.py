"""The callback that evaluates the model on rows before it trains on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid.errors import ConfigError
from tfhybrid.monitoring import metrics
from tfhybrid.stream.trainer.leased_dataset import tensor_of
from tfhybrid.stream.trainer.leases import Leases
from tfhybrid.stream.weights.observed import Observed

_log = logging.getLogger("tfhybrid.stream")


class Validate(keras.callbacks.Callback):
    """Progressive validation: scores the first rows of each lease with the weights just read.

    The scores are sent to the sync unit with the update, and decide there whether weights are
    published (`auc_drop`). List this callback after `Online`, which reads the weights. It also
    copies the model's metrics from the sync unit and the provider to this process, for a
    `tfhybrid.callbacks.TensorBoard` listed after it.

    A key without a row reads its initial value here, whatever `TableConfig.unseen` says: the rows
    of a lease are those that it is trained on.

    Args:
        leases: Leases that the training dataset was made from.
        features: Names of the columns that are the model's inputs, as in
            `tfhybrid.stream.dataset`.
        label: Name of the column of labels, which are 0 or 1.
        rows: Number of rows of a lease to score, from its beginning; at least 1. Default 256.

    Raises:
        ConfigError: `rows` is not positive; or, in training, the model has more or fewer than one
            output per row.
        StreamError: In training, the sync unit or the provider cannot be reached.

    Example:

    ```python
    validate = tfhybrid.stream.Validate(leases, features=["item"], label="label")
    model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables={"item": "item"}), validate])
    ```
    """

    def __init__(
        self, leases: Leases, *, features: Sequence[str], label: str, rows: int = 256
    ) -> None:
        super().__init__()
        if rows < 1:
            raise ConfigError(f"rows must be at least 1. Received: rows={rows}")
        self._leases = leases
        self._features = tuple(features)
        self._label = label
        self._rows = rows
        self._fence: int | None = None  # of the lease that was scored last

    def on_train_begin(self, logs: Any = None) -> None:
        """Logs what keys without a row read. Called by Keras."""
        _log.info("Progressive validation: keys without a row read their initial values")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Scores the first rows of a lease before its first batch is trained. Called by Keras.

        Also records the metrics of the sync unit and the provider in this process.

        Raises:
            ConfigError: The model has more or fewer than one output per row.
            StreamError: The sync unit or the provider cannot be reached.
            KeyError: The stream has no such column.
        """
        work = self._leases.work
        if work is None or work.lease.fence == self._fence:
            return
        self._fence = work.lease.fence
        rows = work.batch.slice(0, self._rows)
        inputs = {name: tensor_of(rows[name]) for name in self._features}
        scores = np.asarray(self.model(inputs, training=False), np.float32).ravel()
        labels = rows[self._label].to_numpy(zero_copy_only=False)
        if len(scores) != len(labels):
            raise ConfigError(
                f"Validate needs a model with one output per row. Received: {len(scores)} outputs "
                f"for {len(labels)} rows"
            )
        self._leases.observe(Observed.of_scores(scores, labels))
        for metric, values in self._leases.stats():
            for name, value in values.items():
                metrics.note(metric, value, name)
