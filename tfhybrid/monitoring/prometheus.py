"""The endpoint that serves a job's metrics to Prometheus."""

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
    """HTTP server of metrics for Prometheus, on a thread of its own. The caller closes it.

    Args:
        job: Name of the job.
        values: Function that returns the current metrics. The server calls it on its threads, one
            request at a time.
        port: Port to listen on; 0 for any free port.
        address: Address to listen on.

    Attributes:
        port: Port on which the server listens.

    Raises:
        ConfigError: The address or the port is not available.
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
        """Stops the server, and waits for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector(Collector):
    """Collector that reads the metrics at each request, one request at a time."""

    def __init__(self, job: str, values: Callable[[], Values]) -> None:
        self._job = job
        self._values = values
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Family]:
        """Returns no families, so that registration does not read metrics."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yields the current metrics for a request, as the Prometheus client demands.

        A family is a metric with its values by label. The first one, `job`, holds the job's name
        and the version of tfhybrid.
        """
        with self._lock:
            metrics = list(self._values())
        yield InfoMetricFamily(
            f"{PREFIX}job", "The job.", {"name": self._job, "version": __version__}
        )
        for metric, values in metrics:
            yield _family(metric, values)


def _family(metric: Metric, values: dict[str, float]) -> Family:
    of_kind: Any = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}[metric.kind]
    labels = [metric.label] if metric.label else []
    family: Family = of_kind(PREFIX + metric.name, metric.meaning, labels=labels)
    for label, value in values.items():
        family.add_metric([label] if metric.label else [], value)  # type: ignore[attr-defined]
    return family
