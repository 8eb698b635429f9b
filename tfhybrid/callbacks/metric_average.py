"""Keras metrics of an epoch over the samples of all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow import keras
from typing_extensions import override

from tfhybrid import distributed
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.errors import UnsupportedError

# Metrics whose variables can be summed over ranks.
_SUMMED = (
    keras.metrics.Sum,
    keras.metrics.AUC,
    keras.metrics.Precision,
    keras.metrics.Recall,
    keras.metrics.TruePositives,
    keras.metrics.TrueNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.FalseNegatives,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
)


class MetricAverage(CollectiveCallback):
    """Callback that replaces the metrics of an epoch with metrics over the samples of all ranks.

    Every rank must use it. Put it before callbacks that act on metrics, such as `EarlyStopping`, so
    that all ranks decide the same. Means over samples (loss, accuracy) are averaged, weighted by
    each rank's samples. Keras metrics that count or sum, such as `AUC`, `Precision` and
    `RootMeanSquaredError`, are computed from the summed counts, because the average of the ranks'
    AUCs is not the AUC of all samples. `callbacks.Evaluate` computes the exact AUC, without Keras's
    thresholds, for each output.

    Raises:
        UnsupportedError: After the first step, if the model has a metric of another kind, or has
            both a counting metric and several outputs.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.MetricAverage()])
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked = False
        self._counts: dict[str, float] = {}
        self._sums: dict[str, list[np.ndarray]] = {}  # state of the metrics that count or sum

    @override
    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        if self._checked:
            return
        # Not earlier: Keras creates the metrics of `compile` in the first step.
        self._checked = True
        metrics = _leaves(self.model.metrics)
        refused = [m.name for m in metrics if not isinstance(m, (keras.metrics.Mean, *_SUMMED))]
        if len(getattr(self.model, "output_names", None) or ()) > 1:
            refused += [m.name for m in _summed(self.model)]  # the logs use other names
        if refused:
            raise UnsupportedError(
                "MetricAverage supports means over samples and, in a model with one output, Keras "
                "metrics that count or sum. The average of another metric over ranks is not the "
                "metric of all samples. "
                "callbacks.Evaluate(dataset) computes AUC, log loss and calibration of all ranks. "
                f"Received: {refused}"
            )

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._counts, self._sums = {}, {}

    @override
    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_begin(logs)
        # Now, because Keras validates with the same metrics.
        self._counts |= self._samples("")
        self._sums |= self._states("")

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Records the number of samples of the validation. Called by Keras."""
        self._counts |= self._samples("val_")
        self._sums |= self._states("val_")

    @override
    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if logs is None:
            return
        # In place, so that later callbacks see the averages.
        counts = self._samples("") | self._counts
        mine = {name: (float(value), counts.get(name, 1.0)) for name, value in logs.items()}
        with distributed.call("callbacks.MetricAverage"):
            by_rank = distributed.allgather_object(mine)
        for name in logs:
            values = [metrics[name] for metrics in by_rank if name in metrics]
            total = sum(count for _, count in values)
            if total > 0:
                logs[name] = sum(value * count for value, count in values if count) / total
        self._total(logs)

    def _total(self, logs: dict[str, Any]) -> None:
        """Replaces metrics that count or sum, in `logs`, by those of the counts of all ranks."""
        mine = self._states("") | self._sums
        with distributed.call("callbacks.MetricAverage"):
            by_rank = distributed.allgather_object(mine)
        metrics = {metric.name: metric for metric in _summed(self.model)}
        for name in mine:
            if name not in logs:
                continue
            metric = metrics[name if name in metrics else name.removeprefix("val_")]
            own = [variable.numpy() for variable in metric.variables]
            summed = [
                np.sum(states, axis=0)
                for states in zip(*(rank[name] for rank in by_rank if name in rank), strict=True)
            ]
            _assign(metric, summed)
            logs[name] = float(metric.result())
            _assign(metric, own)

    def _states(self, prefix: str) -> dict[str, list[np.ndarray]]:
        return {
            f"{prefix}{metric.name}": [variable.numpy() for variable in metric.variables]
            for metric in _summed(self.model)
        }

    def _samples(self, prefix: str) -> dict[str, float]:
        """Returns the weight of each mean, by its name in the logs."""
        means = [m for m in _leaves(self.model.metrics) if isinstance(m, keras.metrics.Mean)]
        return {f"{prefix}{mean.name}": float(mean.count) for mean in means}


def _summed(model: keras.Model) -> list[keras.metrics.Metric]:
    """Returns the metrics whose state consists of sums, except plain means."""
    mean = keras.metrics.Mean.result
    return [
        metric
        for metric in _leaves(model.metrics)
        if isinstance(metric, _SUMMED)
        or (isinstance(metric, keras.metrics.Mean) and type(metric).result is not mean)
    ]


def _assign(metric: keras.metrics.Metric, state: list[np.ndarray]) -> None:
    for variable, value in zip(metric.variables, state, strict=True):
        variable.assign(value)


def _leaves(metrics: list[keras.metrics.Metric]) -> list[keras.metrics.Metric]:
    """Returns all metrics as a flat list. Keras 3 puts those of `compile` into a container."""
    leaves = []
    for metric in metrics:
        inner = getattr(metric, "metrics", None) if IS_KERAS_3 else None
        leaves += [metric] if inner is None else _leaves(inner)
    return leaves
