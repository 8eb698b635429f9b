"""Metrics averaged over ranks."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.callbacks.joined import Joined
from tfhybrid.errors import UnsupportedError


class MetricAverage(Joined):
    """Replaces the metrics of an epoch by their average over the samples of all ranks.

    Put it before callbacks that act on metrics, such as `EarlyStopping`, so that all ranks decide
    alike. It is right for means over samples (loss, accuracy), of which a rank counts as many as it
    had; the average of the ranks' AUCs is not the AUC of all samples, so AUC is refused.

    Raises:
        UnsupportedError: After the first step, if the model has a metric that is no mean.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.MetricAverage()])
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        self._looked = False
        self._counts: dict[str, float] = {}

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Looks at the metrics: Keras makes those of `compile` with the first step."""
        super().on_train_batch_end(batch, logs)
        if self._looked:
            return
        self._looked = True
        refused = [
            m.name for m in _leaves(self.model.metrics) if not isinstance(m, keras.metrics.Mean)
        ]
        if refused:
            raise UnsupportedError(
                "MetricAverage averages means over samples; the average of another metric over "
                "ranks is not the metric of all samples. For the exact AUC and log loss over all "
                f"ranks use tfhybrid.metrics.evaluate(model, dataset). Received: {refused}"
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begins to count anew."""
        super().on_epoch_begin(epoch, logs)
        self._counts = {}

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Notes how many samples the epoch had: Keras validates with the same metrics."""
        super().on_test_begin(logs)
        self._counts |= self._samples("")

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Notes how many samples the validation had."""
        self._counts |= self._samples("val_")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages, in place, so that the callbacks behind this one see the average."""
        super().on_epoch_end(epoch, logs)
        if logs is None:
            return
        counts = self._samples("") | self._counts
        mine = {name: (float(value), counts.get(name, 1.0)) for name, value in logs.items()}
        by_rank = distributed.allgather_object(mine)
        for name in logs:
            values = [its[name] for its in by_rank if name in its]
            total = sum(count for _, count in values)
            if total > 0:
                logs[name] = sum(value * count for value, count in values if count) / total

    def _samples(self, prefix: str) -> dict[str, float]:
        """Returns what each mean is over, by its name in the logs."""
        means = [m for m in _leaves(self.model.metrics) if isinstance(m, keras.metrics.Mean)]
        return {f"{prefix}{mean.name}": float(mean.count) for mean in means}


def _leaves(metrics: list[keras.metrics.Metric]) -> list[keras.metrics.Metric]:
    """Returns the metrics, those of `compile(metrics=...)` taken out of Keras 3's container."""
    leaves = []
    for metric in metrics:
        inner = getattr(metric, "metrics", None) if IS_KERAS_3 else None
        leaves += [metric] if inner is None else _leaves(inner)
    return leaves
