"""`tfhybrid stream audit`: accounts for each row of a stream."""

from __future__ import annotations

import dataclasses

import typer

from tfhybrid.cli.stream.stream_top import Config
from tfhybrid.cli.terminal.console import show, show_json, show_table
from tfhybrid.cli.terminal.options import Json


def audit(config: Config, as_json: Json = False) -> None:
    """Find each row that was put into the queues.

    The rows of a queue are in the weights of a model, told as bad, waiting in the queue or leased,
    or set aside. Reads all queues and journals, so it must run where the files of provider and sync
    unit are; these may run meanwhile. The status is 1 if rows are missing.

    $ tfhybrid stream audit stream.yaml
    """
    from tfhybrid.stream.audit import audit as account
    from tfhybrid.stream.stream_settings import StreamSettings

    accounts = account(StreamSettings.read(config))
    if as_json:
        show_json([{**dataclasses.asdict(each), "missing": each.missing} for each in accounts])
    else:
        columns = ["model", "queue", "put", "in weights", "bad", "waiting", "set aside", "missing"]
        numbers = ("put", "trained", "bad", "waiting", "aside", "missing")
        rows = [
            [each.model, each.queue, *(f"{getattr(each, name):,}" for name in numbers)]
            for each in accounts
        ]
        show_table(columns, rows, text=["model", "queue"])
        for each in accounts:
            if each.removed:
                show(
                    f"{each.queue}: retention has removed {each.removed} records, whose rows are "
                    "not counted"
                )
    if any(each.missing for each in accounts):
        raise typer.Exit(1)
