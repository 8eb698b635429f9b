"""The callback that measures how the model does on rows before it is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid.errors import ConfigError
from tfhybrid.store import metrics
from tfhybrid.stream.leased_dataset import tensor_of
from tfhybrid.stream.leases import Leases
from tfhybrid.stream.observed import Observed


class Validate(keras.callbacks.Callback):
    """Progressive validation: scores the first rows of each lease with the weights just read.

    The scores go to the sync unit with the update. There they decide whether weights are published
    (`auc_drop`). Put it behind `Online`, which reads the weights. It also notes what the sync unit
    and the provider tell of the model in the metrics of this process, for
    `tfhybrid.callbacks.TensorBoard` behind it.

    Args:
        leases: Of the dataset that `fit` is given.
        features: As of `tfhybrid.stream.dataset`.
        label: Likewise; 0 or 1.
        rows: How many rows of a lease are scored.

    Raises:
        ConfigError: `rows` is not positive.

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
            raise ConfigError(f"At least one row of a lease is scored. Received: rows={rows}")
        self._leases = leases
        self._features = tuple(features)
        self._label = label
        self._rows = rows
        self._fence: int | None = None  # of the lease that was scored last

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Scores the first rows of a lease, when it begins."""
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
                f"A model that is validated has one output per row. Received: {len(scores)} "
                f"outputs for {len(labels)} rows"
            )
        self._leases.observe(Observed.of_scores(scores, labels))
        for metric, values in self._leases.stats():
            for name, value in values.items():
                metrics.note(metric, value, name)
