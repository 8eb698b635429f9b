"""The nodes of a cluster, as a table on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.filesize import decimal
from rich.table import Table

from tfhybrid.cli.terminal.console import plain

_RATES = {
    "updates_per_second": "updates/s",
    "served_rows_per_second": "rows/s",
    "received_bytes_per_second": "in/s",
    "served_bytes_per_second": "out/s",
}
_TEXT = ("node", "role", "state", "address")


def nodes_table(status: Mapping[str, Any]) -> Table:
    """Returns a table of a cluster's nodes: state, owned shards, rows, bytes and rates.

    Args:
        status: Reply of the metadata node, from `tfhybrid.cluster.launching.status`.
    """
    table = Table(title=plain(f"Nodes, allocation epoch {status['epoch']}"), title_justify="left")
    columns = ("node", "role", "state", "since", "address", "shards", "rows", "bytes")
    for column in (*columns, *_RATES.values()):
        table.add_column(column, justify="left" if column in _TEXT else "right", overflow="fold")
    for node in status["nodes"]:
        numbers = node["numbers"]
        owned = [each for each in status["allocation"] if each["node"] == node["name"]]
        cells = [
            *(node["name"], node["role"], node["state"], f"{node['seconds']:.0f} s"),
            *(node["address"], str(len(owned)), _whole(numbers.get("rows"))),
            "" if "bytes" not in numbers else decimal(int(numbers["bytes"])),
            *(_rate(name, numbers.get(name)) for name in _RATES),
        ]
        table.add_row(*map(plain, cells))
    return table


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _rate(name: str, rate: float | None) -> str:
    if rate is None:
        return ""
    return decimal(int(rate)) if "bytes" in name else f"{rate:,.1f}"
