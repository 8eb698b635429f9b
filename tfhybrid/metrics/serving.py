"""The endpoint through which a running job serves its metrics to Prometheus."""

from __future__ import annotations

import atexit
import itertools
import logging
from typing import TYPE_CHECKING

from tfhybrid import distributed
from tfhybrid.job import current_job
from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.metrics import Reading
from tfhybrid.monitoring.report import report_stores
from tfhybrid.settings import metrics_host, metrics_port, shm_directory

if TYPE_CHECKING:  # few processes serve, and all import this module
    from tfhybrid.monitoring.prometheus import Endpoint

_log = logging.getLogger("tfhybrid.metrics")


@distributed.call("metrics.serve")
def serve(port: int | None = None, *, address: str | None = None) -> Endpoint | None:
    """Serves Prometheus on rank 0 at `http://HOST:PORT/metrics` until the program ends.

    The metrics cover steps, samples, phases, tables, exchanged bytes and checkpoints. They are
    listed on the page Operations; `tfhybrid new` writes a dashboard. A request only reads counters
    and does not wait for any rank. Every rank must call the function.

    Args:
        port: Port to listen on; 0 for any free port. Defaults to `TFHYBRID_METRICS_PORT`; if
            that is not set, nothing is served.
        address: Address to listen on, `"0.0.0.0"` for all addresses of the host. Defaults to
            `TFHYBRID_METRICS_HOST`; if that is not set, only this host is served. Anyone who can
            connect may read the metrics.

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
    >>> endpoint = tfhybrid.metrics.serve(0)
    >>> url = f"http://127.0.0.1:{endpoint.port}/metrics"
    >>> "tfhybrid_samples_total" in urllib.request.urlopen(url).read().decode()
    True
    >>> endpoint.close()
    """
    chosen = metrics_port() if port is None else port
    if distributed.broadcast_object(chosen) is None:
        return None
    job, host = current_job(), address or metrics_host()

    def reading() -> Reading:
        stores = [store for store in report_stores(shm_directory()) if store.job == job.name]
        return itertools.chain(metrics.of_process(), *map(metrics.of_store, stores))

    def open_endpoint() -> Endpoint | None:
        if distributed.rank() > 0:
            return None
        from tfhybrid.monitoring.prometheus import Endpoint

        return Endpoint(job.name, reading, chosen or 0, host)

    endpoint = distributed.together(open_endpoint)
    if endpoint is not None:
        atexit.register(endpoint.close)
        _log.info("Metrics for Prometheus: http://%s:%d/metrics", host, endpoint.port)
    return endpoint
