"""`tfhybrid top`: watches a running job's tables from another process."""

from __future__ import annotations

import itertools
import time
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from tfhybrid.cli.console import live, plain, show, show_json
from tfhybrid.cli.store import Job, Json, ShmDirectory, as_dict, find, state_text
from tfhybrid.store import metrics
from tfhybrid.store.report import StoreReport

_RATES = {"updates": "updates/s", "new_rows": "new rows/s", "evicted_rows": "evicted/s"}
_OF_FILES = {"cache_hits": "hits/s", "cache_misses": "misses/s"}


def top(
    job: Job,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two readings.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of readings; by default until the job ends.")
    ] = None,
    shm_dir: ShmDirectory = None,
    as_json: Json = False,
    prometheus: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve Prometheus on this port instead of showing a table."
        ),
    ] = None,
) -> None:
    """Watch a job's tables: rows, updates per second, new and evicted keys.

    Reads counters in shared memory without disturbing the job. Ends with the job, or at Ctrl-C.

    With --prometheus the tables and ranks of this host are served at http://HOST:PORT/metrics.
    Metrics
    that only the job itself knows (samples, phases, checkpoints) need tfhybrid.metrics.serve().
    """
    if prometheus is not None:
        _answer(job, shm_dir, prometheus, interval, count)
        return
    before, at = find(job, shm_dir), time.monotonic()
    looks = itertools.count() if count is None else range(count)
    with live() as screen:
        for _ in looks:
            time.sleep(interval)
            now, then = find(job, shm_dir), at
            at = time.monotonic()
            if as_json:
                show_json(as_dict(now) | {"rates": metrics.rates(before, now, at - then)})
            else:
                screen(drawn(before, now, at - then))
            if not now.living:
                return
            before = now


def _answer(job: str, shm_dir: str | None, port: int, interval: float, count: int | None) -> None:
    """Serves Prometheus while the job runs."""
    from tfhybrid.store.prometheus import Endpoint

    find(job, shm_dir)  # or raise an error that lists the jobs
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
    """Returns a job's tables, with rates per second."""
    by_table = metrics.rates(before, now, seconds)
    title = f"{now.job}: {state_text(now)}, {len(now.ranks)} rank(s) here, {decimal(now.bytes)}"
    in_files = any(table.file_bytes for table in now.tables)
    wanted = _RATES | _OF_FILES if in_files else _RATES
    columns = ["table", "rows", "version", *wanted.values(), "bytes"]
    if in_files:
        columns.append("on disk")
    shown = Table(title=plain(title), title_justify="left")
    for column in columns:
        shown.add_column(column, justify="left" if column == "table" else "right", overflow="fold")
    for table in now.tables:
        per_second = [f"{by_table[table.name][rate]:,.1f}" for rate in wanted]
        cells = [table.name, f"{table.rows:,}", f"{table.version:,}", *per_second]
        sizes = [table.bytes, table.file_bytes][: 2 if in_files else 1]
        shown.add_row(*map(plain, [*cells, *map(decimal, sizes)]))
    return shown
