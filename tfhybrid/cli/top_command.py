"""`tfhybrid top`: a running job's tables, watched from another process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.filesize import decimal

from tfhybrid.cli.nodes_command import nodes_table
from tfhybrid.cli.store_command import Job, ShmDirectory, as_dict, find, state_text
from tfhybrid.cli.terminal.console import drawn_table
from tfhybrid.cli.terminal.options import Count, Interval, Json, Prometheus
from tfhybrid.cli.terminal.watching import Numbers, TopLoop

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tfhybrid.cluster.cluster_file import Cluster
    from tfhybrid.monitoring.metrics import Reading
    from tfhybrid.monitoring.report import StoreReport

_RATES = {"updates": "updates/s", "new_rows": "new rows/s", "evicted_rows": "evicted/s"}
_OF_FILES = {"cache_hits": "hits/s", "cache_misses": "misses/s"}
_OF_PASSES = {
    ("pass_keys", "hit"): "hits",
    ("pass_keys", "miss"): "misses",
    ("pass_rows", "fetched"): "rows fetched",
    ("pass_rows", "refreshed"): "refreshed",
    ("pass_rows", "written_back"): "written back",
}


def top(
    job: Job,
    interval: Interval = 2.0,
    count: Count = None,
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
    from tfhybrid.cluster.cluster_file import Cluster

    cluster = Cluster.read(nodes) if nodes else None
    loop = TopLoop(job, lambda: JobLook(find(job, shm_dir), cluster), interval, count)
    if prometheus is None:
        loop.show(as_json, has_rates=True)
    else:
        loop.serve(prometheus)


class JobLook(NamedTuple):
    """A running job at one time: its store on this host, and its embedding nodes.

    Args:
        store: Report of the store.
        cluster: Cluster whose nodes to show too, asked when they are shown; `None` for none.
    """

    store: StoreReport
    cluster: Cluster | None

    def reading(self) -> Reading:
        """Returns the metrics of the store."""
        from tfhybrid.monitoring.metrics import of_store

        return of_store(self.store)

    def ended(self) -> bool:
        """Returns whether no process of the job is alive on this host."""
        return not self.store.living

    def fields(self, rates: Numbers) -> dict[str, Any]:
        """Returns the report of the store, its rates by table and metric, and the nodes.

        Args:
            rates: Growth of counters per second.

        Raises:
            StoreError: The metadata node of `cluster` cannot be reached.
            ConfigError: The file of the cluster's token or a TLS file cannot be read.
        """
        from tfhybrid.cluster import launching
        from tfhybrid.monitoring.metrics import counters, of_passes, of_tables

        of_table = {
            table.name: {
                metric: rates.get((metric, name), 0.0)
                for metric, name in counters(of_tables([table]))
            }
            for table in self.store.tables
        }
        passes = {
            f"{metric} {label}".rstrip(): rates.get((metric, label), 0.0)
            for metric, label in counters(of_passes(self.store.passes))
        }
        fields = {**as_dict(self.store), "rates": of_table, "pass_rates": passes}
        if self.cluster is not None:
            fields["cluster"] = launching.status(self.cluster)
        return fields

    def drawn(self, rates: Numbers) -> RenderableType:
        """Returns the table of the store's tables, and that of the nodes.

        Args:
            rates: Growth of counters per second.

        Raises:
            StoreError: The metadata node of `cluster` cannot be reached.
            ConfigError: The file of the cluster's token or a TLS file cannot be read.
        """
        from rich.console import Group

        from tfhybrid.cluster import launching

        table = tables_table(self.store, rates)
        if self.cluster is None:
            return table
        return Group(table, nodes_table(launching.status(self.cluster)))


def tables_table(store: StoreReport, rates: Numbers) -> Table:
    """Returns a job's tables with rates per second, as a table for a terminal.

    Args:
        store: Report of the store.
        rates: Growth of counters per second.
    """
    in_files = any(table.file_bytes for table in store.tables)
    counted = _RATES | _OF_FILES if in_files else _RATES
    rows = [
        [
            *(table.name, f"{table.rows:,}", f"{table.version:,}"),
            *(f"{rates.get((name, table.name), 0):,.1f}" for name in counted),
            *map(decimal, (table.bytes, table.file_bytes)[: 1 + in_files]),
        ]
        for table in store.tables
    ]
    columns = ["table", "rows", "version", *counted.values(), *("bytes", "on disk")[: 1 + in_files]]
    here = f"{len(store.ranks)} rank(s) here, {decimal(store.bytes)}"
    title = f"{store.job}: {state_text(store)}, {here}"
    caption = _about_passes(store, rates) if store.passes.announced else ""
    return drawn_table(columns, rows, text=["table"], title=title, caption=caption)


def _about_passes(store: StoreReport, rates: Numbers) -> str:
    """Describes the fast tier and the rates of passes, in two lines."""
    now = store.passes
    counted = [f"{rates.get(key, 0):,.0f} {words}" for key, words in _OF_PASSES.items()]
    received = decimal(round(rates.get(("pass_received_bytes", ""), 0)))
    return (
        f"passes: {now.standing} open, {now.rows:,} rows, {decimal(now.bytes)} of shared memory\n"
        f"a second: {', '.join(counted)}, {received} received"
    )
