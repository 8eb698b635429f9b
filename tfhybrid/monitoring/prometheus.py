"""The metrics of a job for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tfhybrid._version import __version__
from tfhybrid.errors import ConfigError
from tfhybrid.monitoring.metrics import PREFIX, Metric

Values = Iterable[tuple[Metric, dict[str, float]]]


class Endpoint:
    """Serves Prometheus on a port, on a separate thread, until it is closed.

    Args:
        job: Name of the job.
        values: Returns the current metrics.
        port: The port to listen on; 0 for any free port.
        address: The address to listen on.

    Raises:
        ConfigError: The port is not available.
    """

    def __init__(self, job: str, values: Callable[[], Values], port: int, address: str) -> None:
        registry = CollectorRegistry()
        registry.register(_Collector(job, values))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"Metrics need a free port. Received: {address}:{port}, {error}"
            ) from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector(Collector):
    """Reads the metrics at each request, one request at a time."""

    def __init__(self, job: str, values: Callable[[], Values]) -> None:
        self._job = job
        self._values = values
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Family]:
        """Nothing is read before the first request."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yields a family for each metric."""
        with self._lock:
            found = list(self._values())
        yield InfoMetricFamily(
            f"{PREFIX}job", "The job.", {"name": self._job, "version": __version__}
        )
        for metric, values in found:
            yield _family(metric, values)


def _family(metric: Metric, values: dict[str, float]) -> Family:
    of_kind: Any = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}[metric.kind]
    labels = [metric.label] if metric.label else []
    family: Family = of_kind(PREFIX + metric.name, metric.meaning, labels=labels)
    for label, value in values.items():
        family.add_metric([label] if metric.label else [], value)  # type: ignore[attr-defined]
    return family
