"""`tfhybrid top`: a running job's tables, seen from outside of it."""

from __future__ import annotations

import itertools
import time
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from tfhybrid.cli.console import live, plain, show_json
from tfhybrid.cli.store import Job, Json, ShmDirectory, as_dict, find, state_text
from tfhybrid.store.report import StoreReport


def top(
    job: Job,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many looks; by default until the job ends.")
    ] = None,
    shm_dir: ShmDirectory = None,
    as_json: Json = False,
) -> None:
    """Watch a job's tables: rows, updates a second, keys that come and go.

    Reads counters in shared memory and disturbs nobody. Ends when the job does, or at Ctrl-C.
    """
    before, at = find(job, shm_dir), time.monotonic()
    looks = itertools.count() if count is None else range(count)
    with live() as screen:
        for _ in looks:
            time.sleep(interval)
            now, then = find(job, shm_dir), at
            at = time.monotonic()
            if as_json:
                show_json(as_dict(now) | {"rates": rates(before, now, at - then)})
            else:
                screen(drawn(before, now, at - then))
            if not now.living:
                return
            before = now


def rates(before: StoreReport, now: StoreReport, seconds: float) -> dict[str, dict[str, float]]:
    """Returns by table what happened in a second: updates, and rows that came and went."""
    older = {table.name: table for table in before.tables}
    found = {}
    for table in now.tables:
        old = older.get(table.name, table)
        evicted = table.evicted - old.evicted
        found[table.name] = {
            "updates": (table.version - old.version) / seconds,
            "new_rows": max(0, table.rows - old.rows + evicted) / seconds,
            "evicted_rows": evicted / seconds,
        }
    return found


def drawn(before: StoreReport, now: StoreReport, seconds: float) -> Table:
    """Returns the tables of a job with what happened in a second."""
    by_table = rates(before, now, seconds)
    title = f"{now.job}: {state_text(now)}, {len(now.ranks)} rank(s) here, {decimal(now.bytes)}"
    columns = ["table", "rows", "version", "updates/s", "new rows/s", "evicted/s", "bytes"]
    shown = Table(title=plain(title), title_justify="left")
    for column in columns:
        shown.add_column(column, justify="left" if column == "table" else "right", overflow="fold")
    for table in now.tables:
        per_second = [f"{rate:,.1f}" for rate in by_table[table.name].values()]
        cells = [table.name, f"{table.rows:,}", f"{table.version:,}", *per_second]
        shown.add_row(*map(plain, [*cells, decimal(table.bytes)]))
    return shown
