"""Metrics of a sync unit: its models and their publications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.metrics import Metric
from tfhybrid.stream.sync_unit.publisher import Publisher
from tfhybrid.stream.sync_unit.target_model import TargetModel


def stream_stats(
    models: Mapping[str, TargetModel], publishers: Mapping[str, Publisher]
) -> dict[str, dict[str, float]]:
    """Records the metrics of target models and publishers, and returns those of online training.

    They are recorded in the registry of this process (`monitoring.metrics`). Thread-safe.

    Args:
        models: Target models by name.
        publishers: Publishers by the name of their model. A model may have none.

    Returns:
        A dictionary for each metric, by the metric's name: its values by the name of the model or
        queue. Metrics that this process has recorded before are among them.
    """
    for name, model in models.items():
        for metric, value in _of_model(model):
            metrics.note(metric, value, name)
    for name, publisher in publishers.items():
        for metric, value in _of_publisher(publisher):
            metrics.note(metric, value, name)
    return metrics.as_dict(metrics.of_stream())


def _of_model(model: TargetModel) -> Iterator[tuple[Metric, float]]:
    yield metrics.STREAM_UPDATES, model.version
    yield metrics.STREAM_REFUSED, model.refused
    yield metrics.STREAM_SET_ASIDE, len(model.set_aside)
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
