"""The endpoint that serves metrics to Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from tfhybrid._version import __version__
from tfhybrid.errors import ConfigError
from tfhybrid.monitoring.metrics import PREFIX, Metric, Reading, Values
from tfhybrid.monitoring.web_server import App, WebServer

LOOPBACK = "127.0.0.1"


class Endpoint(WebServer):
    """HTTP server of metrics for Prometheus, on threads of its own. The caller closes it.

    Args:
        job: Name of the job.
        reading: Function that returns the current metrics. The server calls it on its threads, one
            request at a time.
        port: Port to listen on; 0 for any free port.
        address: Address to listen on. Default: that of this host alone.

    Raises:
        ConfigError: The address or the port is not available.
    """

    def __init__(
        self, job: str, reading: Callable[[], Reading], port: int, address: str = LOOPBACK
    ) -> None:
        try:
            super().__init__(metrics_app(reading, job), (address, port))
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"Metrics need a free port. Received: {address}:{port}, {error}"
            ) from error


def metrics_app(reading: Callable[[], Reading], job: str = "") -> App:
    """Returns a WSGI application that answers a GET of any path with the current metrics.

    Args:
        reading: Function that returns the current metrics. It is called at each request, by one
            thread at a time; its errors reach the server of the application.
        job: Name of the job, for the metric `job`. Default: empty, without that metric.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(reading, job))
    app: App = make_wsgi_app(registry)
    return app


class _Collector(Collector):
    """Collector that reads the metrics at each request, one request at a time."""

    def __init__(self, reading: Callable[[], Reading], job: str) -> None:
        self._reading = reading
        self._job = {"name": job, "version": __version__} if job else None
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Family]:
        """Returns no families, so that registration does not read metrics."""
        return []

    @override
    def collect(self) -> Iterator[Family]:
        with self._lock:
            reading = list(self._reading())
        if self._job is not None:
            yield InfoMetricFamily(f"{PREFIX}job", "The job.", self._job)
        for metric, values in reading:
            yield _family(metric, values)


def _family(metric: Metric, values: Values) -> Family:
    of_kind: Any = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}[metric.kind]
    names = _several(metric.label)
    family: Family = of_kind(PREFIX + metric.name, metric.meaning, labels=names)
    for label, value in values.items():
        family.add_metric(_several(label), value)  # type: ignore[attr-defined]
    return family


def _several(label: str | tuple[str, ...]) -> list[str]:
    """Returns the names or the values of a metric's labels; none for the empty string."""
    return [*label] if isinstance(label, tuple) else [label] if label else []
