"""The endpoint through which a running job serves its metrics to Prometheus."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator

from tfhybrid import distributed
from tfhybrid.job import current_job
from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.metrics import Metric
from tfhybrid.monitoring.prometheus import Endpoint
from tfhybrid.monitoring.report import report_stores
from tfhybrid.settings import metrics_port, shm_directory

_log = logging.getLogger("tfhybrid.metrics")


@distributed.call("metrics.serve")
def serve(port: int | None = None, *, address: str = "0.0.0.0") -> Endpoint | None:
    """Serves Prometheus on rank 0 at `http://HOST:PORT/metrics` until the program ends.

    The metrics cover steps, samples, phases, tables, exchanged bytes and checkpoints. They are
    listed in docs/operations.md; `tfhybrid new` writes a dashboard. A request only reads counters
    and does not wait for any rank. Every rank must call the function.

    Args:
        port: Port to listen on; 0 for any free port. Defaults to `TFHYBRID_METRICS_PORT`; if
            that is not set, nothing is served.
        address: Address to listen on. Defaults to all addresses of the host.

    Returns:
        On rank 0, the endpoint, with its `port` and `close()`; elsewhere, or without a port,
        `None`.

    Raises:
        ConfigError: On rank 0: the port is not available. On any rank: `TFHYBRID_METRICS_PORT` is
            not a port.
        StoreError: On other ranks: the port is not available on rank 0.
        NotInitializedError: `tfhybrid.init()` was not called, and there is a port.

    Example:

    >>> import urllib.request, tfhybrid
    >>> tfhybrid.init()
    >>> endpoint = tfhybrid.metrics.serve(0, address="127.0.0.1")
    >>> url = f"http://127.0.0.1:{endpoint.port}/metrics"
    >>> "tfhybrid_samples_total" in urllib.request.urlopen(url).read().decode()
    True
    >>> endpoint.close()
    """
    chosen = metrics_port() if port is None else port
    if distributed.broadcast_object(chosen) is None:
        return None
    job = current_job()

    def values() -> Iterator[tuple[Metric, dict[str, float]]]:
        yield from metrics.of_process()
        for store in report_stores(shm_directory()):
            if store.job == job.name:
                yield from metrics.of_store(store)

    def open_endpoint() -> Endpoint | None:
        return Endpoint(job.name, values, chosen or 0, address) if distributed.rank() == 0 else None

    endpoint = distributed.together(open_endpoint)
    if endpoint is not None:
        atexit.register(endpoint.close)
        _log.info("Metrics for Prometheus: http://%s:%d/metrics", address, endpoint.port)
    return endpoint
