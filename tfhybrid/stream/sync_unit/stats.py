"""Metrics of a sync unit: its models and their publications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.metrics import Metric
from tfhybrid.stream.sync_unit.publisher import Publisher
from tfhybrid.stream.sync_unit.target_model import TargetModel

Values = Iterable[tuple[Metric, dict[str, float]]]


def stream_stats(
    models: Mapping[str, TargetModel], publishers: Mapping[str, Publisher]
) -> dict[str, dict[str, float]]:
    """Records the metrics of a sync unit in this process's registry, and returns them. Thread-safe.

    Args:
        models: Target models by name.
        publishers: Publishers by the name of their model; a model need not have one.

    Returns:
        Values by the name of the metric and the label, which is a model or a queue: all metrics of
        online training that this process has recorded.
    """
    for name, model in models.items():
        for metric, value in _of_model(model):
            metrics.note(metric, value, name)
    for name, publisher in publishers.items():
        for metric, value in _of_publisher(publisher):
            metrics.note(metric, value, name)
    return as_dict(metrics.of_stream())


def as_dict(values: Values) -> dict[str, dict[str, float]]:
    """Returns metrics as JSON for a message: values by the name of the metric and the label."""
    return {metric.name: dict(of_metric) for metric, of_metric in values}


def from_dict(
    fields: Mapping[str, Mapping[str, float]],
) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics in the JSON of `as_dict`; skips metrics that this version lacks.

    Args:
        fields: Values by the name of the metric and the label.

    Yields:
        A metric, and its values by label.
    """
    for metric in metrics.OF_STREAM:
        if metric.name in fields:
            yield metric, dict(fields[metric.name])


def _of_model(model: TargetModel) -> Iterator[tuple[Metric, float]]:
    yield metrics.STREAM_UPDATES, model.version
    yield metrics.STREAM_REFUSED, model.refused
    yield metrics.UNPUBLISHED_ROWS, model.unpublished_rows
    staleness = list(model.staleness)
    if staleness:
        median, high = np.quantile(staleness, [0.5, 0.99], method="higher")
        yield metrics.STREAM_STALENESS_P50, float(median)
        yield metrics.STREAM_STALENESS_P99, float(high)


def _of_publisher(publisher: Publisher) -> Iterator[tuple[Metric, float]]:
    status = publisher.status()
    yield metrics.PUBLICATIONS, status["published"]
    yield metrics.PUBLICATIONS_WITHHELD, status["withheld"]
    yield metrics.PUBLICATIONS_FAILED, status["failed"]
    yield metrics.PUBLISHED_BYTES, status["bytes"]
    for metric, field in (
        (metrics.LAST_PUBLICATION_BYTES, "last_bytes"),
        (metrics.PUBLICATION_NUMBER, "number"),
        (metrics.PUBLICATION_AUC, "auc"),
    ):
        if status[field] is not None:
            yield metric, status[field]
