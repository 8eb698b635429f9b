"""What the sync unit tells of its models and their publications, by the metrics registry."""

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
    """Notes the metrics of a sync unit in this process's registry, and returns them.

    Args:
        models: By name.
        publishers: Of some of them.

    Returns:
        By metric and label.
    """
    for name, model in models.items():
        for metric, value in _of_model(model):
            metrics.note(metric, value, name)
    for name, publisher in publishers.items():
        for metric, value in _of_publisher(publisher):
            metrics.note(metric, value, name)
    return as_dict(metrics.of_stream())


def as_dict(values: Values) -> dict[str, dict[str, float]]:
    """Returns metrics as a message says them."""
    return {metric.name: dict(of_metric) for metric, of_metric in values}


def from_dict(
    found: Mapping[str, Mapping[str, float]],
) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields what `as_dict` was given; what this version does not know is left out."""
    for metric in metrics.OF_STREAM:
        if metric.name in found:
            yield metric, dict(found[metric.name])


def _of_model(model: TargetModel) -> Iterator[tuple[Metric, float]]:
    yield metrics.STREAM_UPDATES, model.version
    yield metrics.STREAM_REFUSED, model.refused
    yield metrics.UNPUBLISHED_ROWS, model.unpublished_rows
    staleness = list(model.staleness)
    if staleness:
        middle, high = np.quantile(staleness, [0.5, 0.99], method="higher")
        yield metrics.STREAM_STALENESS_P50, float(middle)
        yield metrics.STREAM_STALENESS_P99, float(high)


def _of_publisher(publisher: Publisher) -> Iterator[tuple[Metric, float]]:
    found = publisher.status()
    yield metrics.PUBLICATIONS, found["published"]
    yield metrics.PUBLICATIONS_WITHHELD, found["withheld"]
    yield metrics.PUBLICATIONS_FAILED, found["failed"]
    yield metrics.PUBLISHED_BYTES, found["bytes"]
    for metric, field in (
        (metrics.LAST_PUBLICATION_BYTES, "last_bytes"),
        (metrics.PUBLICATION_NUMBER, "number"),
        (metrics.PUBLICATION_AUC, "auc"),
    ):
        if found[field] is not None:
            yield metric, found[field]
