"""`tfhybrid store`: commands for the tables in this host's memory, of running and dead jobs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from tfhybrid.cli.terminal.console import (
    plain,
    show,
    show_json,
    show_table,
)
from tfhybrid.cli.terminal.help_page import CommandApp
from tfhybrid.cli.terminal.options import Json
from tfhybrid.errors import StoreError
from tfhybrid.settings import shm_directory

if TYPE_CHECKING:
    from tfhybrid.monitoring.report import StoreReport

app = CommandApp()

ShmDirectory = Annotated[
    str | None,
    typer.Option(
        "--shm-dir",
        metavar="DIRECTORY",
        show_default="$TFHYBRID_SHM_DIR or /dev/shm",
        help="Directory of stores.",
    ),
]
Job = Annotated[str, typer.Argument(help="Name of the job, as `tfhybrid store list` shows it.")]


@app.callback()
def store() -> None:
    """Show the tables in this host's memory, and remove those of dead jobs.

    No command affects a running job.
    """


@app.command("list")
def list_(shm_dir: ShmDirectory = None, as_json: Json = False) -> None:
    """List this user's stores, of running and dead jobs.

    Shows the processes, rows and bytes of each job on this host.
    """
    from tfhybrid.monitoring.report import report_stores

    stores = report_stores(shm_dir or shm_directory())
    if as_json:
        show_json([as_dict(each) for each in stores])
        return
    if not stores:
        show(f"No stores of this user in {shm_dir or shm_directory()}")
        return
    rows = [
        [
            each.job,
            state_text(each),
            f"{len(each.tables)}",
            f"{sum(table.rows for table in each.tables):,}",
            decimal(each.bytes),
            "; ".join(rank.description for rank in each.ranks) or each.problem,
        ]
        for each in stores
    ]
    columns = ["job", "state", "tables", "rows", "bytes", "processes"]
    show_table(columns, rows, text=["job", "state", "processes"])


@app.command("show")
def show_(job: Job, shm_dir: ShmDirectory = None, as_json: Json = False) -> None:
    """Show a job's tables and ranks on this host.

    $ tfhybrid store show ctr
    """
    report = find(job, shm_dir)
    if as_json:
        show_json(as_dict(report))
        return
    show(plain(f"{report.job} in {report.directory}: {state_text(report)}", "bold"))
    for rank in report.ranks:
        show(plain(f"local rank {rank.local_rank}: {rank.state.name.lower()}, {rank.description}"))
    if report.problem:
        show(plain(report.problem))
    show_tables(report)
    show_passes(report)


@app.command()
def remove(job: Job, shm_dir: ShmDirectory = None) -> None:
    """Remove the store of a dead job, and free its memory.

    Refuses while a process of the job is alive. A job that would resume from memory starts from its
    newest checkpoint instead.
    """
    from tfhybrid.core import native

    size = native.remove_store(shm_dir or shm_directory(), job)
    show(plain(f"Removed the store of {job}: {decimal(size)}"))


def find(job: str, shm_dir: str | None) -> StoreReport:
    """Returns the store of a job.

    Args:
        job: Name of the job.
        shm_dir: Directory of stores. Defaults to `settings.shm_directory()`.

    Raises:
        StoreError: The directory has no store of this job; the message lists the jobs.
    """
    from tfhybrid.monitoring.report import report_stores

    directory = shm_dir or shm_directory()
    stores = report_stores(directory)
    for each in stores:
        if each.job == job:
            return each
    raise StoreError(
        f"{directory} has stores of the jobs {[each.job for each in stores]}. Received: {job!r}"
    )


def show_tables(report: StoreReport) -> None:
    """Writes the contents and sizes of a store's tables to standard output, within 80 columns."""
    tables = [table for table in report.tables if not table.problem]
    for table in report.tables:
        if table.problem:
            show(plain(f"table {table.name}: {table.problem}"))
    if not tables:
        return
    rows = [
        [
            *(table.name, f"{table.rows:,}", f"{table.version:,}", f"{table.dim}"),
            *(table.optimizer, f"{table.evicted:,}"),
        ]
        for table in tables
    ]
    columns = ["table", "rows", "version", "dim", "optimizer", "evicted"]
    show_table(columns, rows, text=["table", "optimizer"])
    sizes = [
        [t.name, *map(decimal, (t.embedding_bytes, t.state_bytes, t.index_bytes, t.bytes))]
        for t in tables
    ]
    show_table(["table", "embeddings", "state", "index", "in all"], sizes, text=["table"])
    files = [
        [
            *(table.name, decimal(table.file_bytes), decimal(table.cache_bytes)),
            *(f"{table.cache_hits:,}", f"{table.cache_misses:,}"),
        ]
        for table in tables
        if table.file_bytes
    ]
    if files:
        show_table(["table", "on disk", "cache", "hits", "misses"], files, text=["table"])


def show_passes(report: StoreReport) -> None:
    """Writes the counters of passes to standard output; nothing if no pass was announced.

    A pass is a group of batches whose rows are fetched ahead (`tfhybrid.data.announce`).

    Args:
        report: Report of the store.
    """
    passes = report.passes
    if not passes.announced:
        return
    counts = (passes.announced, passes.hits, passes.misses, passes.fetched, passes.refreshed)
    columns = ["passes", "hits", "misses", "fetched", "refreshed", "written back", "received"]
    cells = [*map("{:,}".format, (*counts, passes.written)), decimal(passes.received_bytes)]
    show_table(columns, [cells], text=[])
    show(plain(f"{passes.standing} open: {passes.rows:,} rows, {decimal(passes.bytes)}"))


def state_text(report: StoreReport) -> str:
    """Returns a job's state in one word, "running" or "dead".

    Args:
        report: Report of the job's store.
    """
    return "running" if report.living else "dead"


def as_dict(report: StoreReport) -> dict[str, Any]:
    """Returns a report as a dictionary that is ready for JSON."""
    fields = dataclasses.asdict(report) | {"living": report.living}
    fields["passes"]["asked"] = report.passes.requested  # the old name, for one release
    fields["ranks"] = [
        dataclasses.asdict(rank) | {"state": rank.state.name.lower()} for rank in report.ranks
    ]
    return fields
