"""Metrics averaged over ranks."""

from __future__ import annotations

from typing import Any

import keras

from tfhybrid import distributed
from tfhybrid.errors import UnsupportedError


class MetricAverage(keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their average over the ranks.

    Put it before callbacks that act on metrics, such as `EarlyStopping`, so that all ranks decide
    alike. It is right for means over samples (loss, accuracy) where ranks have equal numbers of
    samples; the average of the ranks' AUCs is not the AUC of all samples, so AUC is refused.

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

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Looks at the metrics: Keras makes those of `compile` with the first step."""
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

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages, in place, so that the callbacks behind this one see the average."""
        if logs is None:
            return
        by_rank = distributed.allgather_object({name: float(value) for name, value in logs.items()})
        for name in logs:
            logs[name] = sum(values[name] for values in by_rank) / len(by_rank)


def _leaves(metrics: list[keras.metrics.Metric]) -> list[keras.metrics.Metric]:
    """Returns the metrics, those of `compile(metrics=...)` taken out of their container."""
    leaves = []
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        leaves += [metric] if inner is None else _leaves(inner)
    return leaves
