"""`tfhybrid stream audit`: accounts for each row of a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from tfhybrid.cli.stream.stream_top import Config
from tfhybrid.cli.terminal.console import show, show_json, show_table
from tfhybrid.cli.terminal.options import Json

if TYPE_CHECKING:
    from tfhybrid.stream.audit import QueueAccount


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
        show_json(fields_of(accounts))
    else:
        show_accounts(accounts)
    check(accounts)


def fields_of(accounts: Sequence[QueueAccount]) -> list[dict[str, Any]]:
    """Returns accounts as JSON has them.

    Args:
        accounts: Accounts of a stream.
    """
    return [{**dataclasses.asdict(each), "missing": each.missing} for each in accounts]


def show_accounts(accounts: Sequence[QueueAccount]) -> None:
    """Shows accounts as a table.

    Args:
        accounts: Accounts of a stream.
    """
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


def check(accounts: Sequence[QueueAccount]) -> None:
    """Ends the command with status 1 if rows are missing.

    Args:
        accounts: Accounts of a stream.
    """
    if any(each.missing for each in accounts):
        raise typer.Exit(1)
