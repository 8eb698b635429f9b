"""`tfhybrid top`: a running job's tables, watched from another process."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from tfhybrid.cli.store_command import (
    Job,
    ShmDirectory,
    as_dict,
    find,
    state_text,
)
from tfhybrid.cli.terminal.console import (
    live,
    plain,
    show,
    show_json,
)
from tfhybrid.cli.terminal.options import Interval, Json, Prometheus

if TYPE_CHECKING:
    from rich.table import Table

    from tfhybrid.monitoring.report import PassReport, StoreReport

_RATES = {"updates": "updates/s", "new_rows": "new rows/s", "evicted_rows": "evicted/s"}
_OF_PASSES = {
    "pass_keys hit": "hits",
    "pass_keys miss": "misses",
    "pass_rows fetched": "rows fetched",
    "pass_rows refreshed": "refreshed",
    "pass_rows written_back": "written back",
}
_OF_FILES = {"cache_hits": "hits/s", "cache_misses": "misses/s"}


def top(
    job: Job,
    interval: Interval = 2.0,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default="until the job ends", help="Number of readings."
        ),
    ] = None,
    shm_dir: ShmDirectory = None,
    as_json: Json = False,
    prometheus: Prometheus = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Cluster file of the nodes that own the tables, to show them too."
        ),
    ] = None,
) -> None:
    """Watch the tables of a running job.

    Shows rows, updates per second, and new and evicted keys, until the job ends or Ctrl-C. Reads
    only counters in shared memory, which does not slow the job down. Tables on embedding nodes have
    no rows on this host: add --nodes.

    With --prometheus, http://HOST:PORT/metrics tells about the tables and ranks of this host. Other
    metrics of the job (samples, phases, checkpoints) need tfhybrid.metrics.serve() in the job.

    $ tfhybrid top ctr --interval 5
    """
    if prometheus is not None:
        _answer(job, shm_dir, prometheus, interval, count)
        return
    from rich.console import Group

    from tfhybrid.cli.terminal.node_table import nodes_table
    from tfhybrid.cluster import launching
    from tfhybrid.cluster.cluster_file import Cluster

    before, at = find(job, shm_dir), time.monotonic()
    cluster = Cluster.read(nodes) if nodes else None
    looks = itertools.count() if count is None else range(count)
    with live() as screen:
        for _ in looks:
            time.sleep(interval)
            now, then = find(job, shm_dir), at
            at = time.monotonic()
            status = None if cluster is None else launching.status(cluster)
            if as_json:
                fields = as_dict(now) | _rates_of(before, now, at - then)
                show_json(fields if status is None else fields | {"cluster": status})
            else:
                tables = drawn(before, now, at - then)
                screen(tables if status is None else Group(tables, nodes_table(status)))
            if not now.living:
                return
            before = now


def _rates_of(before: StoreReport, now: StoreReport, seconds: float) -> dict[str, Any]:
    from tfhybrid.monitoring import metrics

    return {
        "rates": metrics.rates(before, now, seconds),
        "pass_rates": metrics.pass_rates(before.passes, now.passes, seconds),
    }


def _answer(job: str, shm_dir: str | None, port: int, interval: float, count: int | None) -> None:
    """Serves Prometheus until the job ends, or for `count` intervals."""
    from tfhybrid.monitoring import metrics
    from tfhybrid.monitoring.prometheus import Endpoint

    find(job, shm_dir)  # fails now rather than at the first request
    endpoint = Endpoint(job, lambda: metrics.of_store(find(job, shm_dir)), port, "0.0.0.0")
    show(plain(f"Metrics of {job}: port {endpoint.port}, /metrics"))
    try:
        for _ in itertools.count() if count is None else range(count):
            time.sleep(interval)
            if not find(job, shm_dir).living:
                return
    finally:
        endpoint.close()


def drawn(before: StoreReport, now: StoreReport, seconds: float) -> Table:
    """Returns a job's tables with rates per second, as a table for a terminal.

    Args:
        before: Earlier report.
        now: Current report.
        seconds: Time between the two reports.
    """
    from rich.table import Table

    from tfhybrid.monitoring import metrics

    by_table = metrics.rates(before, now, seconds)
    title = f"{now.job}: {state_text(now)}, {len(now.ranks)} rank(s) here, {decimal(now.bytes)}"
    in_files = any(table.file_bytes for table in now.tables)
    rates = _RATES | _OF_FILES if in_files else _RATES
    columns = ["table", "rows", "version", *rates.values(), "bytes"]
    if in_files:
        columns.append("on disk")
    output = Table(title=plain(title), title_justify="left")
    for column in columns:
        output.add_column(column, justify="left" if column == "table" else "right", overflow="fold")
    for table in now.tables:
        per_second = [f"{by_table[table.name][rate]:,.1f}" for rate in rates]
        cells = [table.name, f"{table.rows:,}", f"{table.version:,}", *per_second]
        sizes = [table.bytes, table.file_bytes][: 2 if in_files else 1]
        output.add_row(*map(plain, [*cells, *map(decimal, sizes)]))
    if now.passes.announced:
        output.caption = plain(_about_passes(before.passes, now.passes, seconds))
        output.caption_justify = "left"
    return output


def _about_passes(before: PassReport, now: PassReport, seconds: float) -> str:
    """Describes the fast tier and the rates of passes, in two lines."""
    from tfhybrid.monitoring import metrics

    rates = metrics.pass_rates(before, now, seconds)
    counted = [f"{rates[name]:,.0f} {what}" for name, what in _OF_PASSES.items()]
    received = decimal(round(rates["pass_received_bytes"]))
    return (
        f"passes: {now.standing} open, {now.rows:,} rows, {decimal(now.bytes)} of shared memory\n"
        f"a second: {', '.join(counted)}, {received} received"
    )
