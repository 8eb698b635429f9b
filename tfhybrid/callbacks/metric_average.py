"""Metrics of an epoch, of the samples of all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.callbacks.joined import Joined
from tfhybrid.errors import UnsupportedError

# Their variables add up over ranks.
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


class MetricAverage(Joined):
    """Replaces the metrics of an epoch by those over the samples of all ranks.

    Put it before callbacks that act on metrics, such as `EarlyStopping`, so that all ranks decide
    alike. Means over samples (loss, accuracy) are averaged, a rank counting as many as it had.
    Keras's metrics that count or sum, such as `AUC`, `Precision` and `RootMeanSquaredError`, are
    those of the summed counts: the average of the ranks' AUCs is not the AUC of all samples.
    `callbacks.Evaluate` has the exact AUC, without Keras's thresholds, and that of each output.

    Raises:
        UnsupportedError: After the first step, if the model has a metric of another kind, or one
            that counts and several outputs.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.MetricAverage()])
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        self._looked = False
        self._counts: dict[str, float] = {}
        self._sums: dict[str, list[np.ndarray]] = {}  # the states of metrics that count or sum

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Looks at the metrics: Keras makes those of `compile` with the first step."""
        super().on_train_batch_end(batch, logs)
        if self._looked:
            return
        self._looked = True
        metrics = _leaves(self.model.metrics)
        refused = [m.name for m in metrics if not isinstance(m, (keras.metrics.Mean, *_SUMMED))]
        if len(getattr(self.model, "output_names", None) or ()) > 1:
            refused += [m.name for m in _summed(self.model)]  # the logs have other names
        if refused:
            raise UnsupportedError(
                "MetricAverage takes means over samples and, in a model of one output, metrics of "
                "Keras that count or sum; the average of another metric over ranks is not the "
                "metric of all samples. "
                "callbacks.Evaluate(dataset) has AUC, log loss and calibration of all ranks. "
                f"Received: {refused}"
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begins to count anew."""
        super().on_epoch_begin(epoch, logs)
        self._counts, self._sums = {}, {}

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Notes how many samples the epoch had: Keras validates with the same metrics."""
        super().on_test_begin(logs)
        self._counts |= self._samples("")
        self._sums |= self._states("")

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Notes how many samples the validation had."""
        self._counts |= self._samples("val_")
        self._sums |= self._states("val_")

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
        self._total(logs)

    def _total(self, logs: dict[str, Any]) -> None:
        """Replaces metrics that count or sum by those of the counts of all ranks."""
        mine = self._states("") | self._sums
        by_rank = distributed.allgather_object(mine)
        metrics = {metric.name: metric for metric in _summed(self.model)}
        for name in mine:
            if name not in logs:
                continue
            metric = metrics[name if name in metrics else name.removeprefix("val_")]
            own = [variable.numpy() for variable in metric.variables]
            summed = [
                np.sum(states, axis=0)
                for states in zip(*(its[name] for its in by_rank if name in its), strict=True)
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
        """Returns what each mean is over, by its name in the logs."""
        means = [m for m in _leaves(self.model.metrics) if isinstance(m, keras.metrics.Mean)]
        return {f"{prefix}{mean.name}": float(mean.count) for mean in means}


def _summed(model: keras.Model) -> list[keras.metrics.Metric]:
    """Returns the metrics whose result is not the mean of a sum, but whose state is of sums."""
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
    """Returns the metrics, those of `compile(metrics=...)` taken out of Keras 3's container."""
    leaves = []
    for metric in metrics:
        inner = getattr(metric, "metrics", None) if IS_KERAS_3 else None
        leaves += [metric] if inner is None else _leaves(inner)
    return leaves
