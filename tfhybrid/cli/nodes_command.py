"""`tfhybrid nodes`: commands for the processes that own the tables of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from tfhybrid.cli.terminal.console import drawn_table, live, show, show_json
from tfhybrid.cli.terminal.help_page import CommandApp
from tfhybrid.cli.terminal.options import Json

if TYPE_CHECKING:
    from rich.table import Table

app = CommandApp()

_NUMBERS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("rows", "{:,.0f}".format),
    ("bytes", lambda size: decimal(int(size))),
    ("updates_per_second", "{:,.1f}".format),
    ("served_rows_per_second", "{:,.1f}".format),
    ("received_bytes_per_second", lambda rate: decimal(int(rate))),
    ("served_bytes_per_second", lambda rate: decimal(int(rate))),
)

_File = Annotated[Path, typer.Argument(help="Cluster file, such as cluster.yaml.")]


@app.callback()
def nodes() -> None:
    """Start, show, move and end the nodes that own the tables of jobs."""


@app.command()
def up(file: _File) -> None:
    """Start the nodes of a cluster file.

    Returns when they are ready, and prints the variables to export in the shell of a job.

    $ tfhybrid nodes up cluster.yaml
    """
    from tfhybrid.cluster import launching
    from tfhybrid.cluster.cluster_file import Cluster

    cluster = Cluster.read(file)
    launching.up(cluster)
    show(f"export TFHYBRID_NODES={cluster.listen}:{cluster.port}")
    show(f"export TFHYBRID_NODES_TOKEN={cluster.token_file}")


@app.command()
def status(file: _File, as_json: Json = False) -> None:
    """Show the nodes, their states, and the shards that they own."""
    from tfhybrid.cluster import launching
    from tfhybrid.cluster.cluster_file import Cluster

    cluster_status = launching.status(Cluster.read(file))
    if as_json:
        show_json(cluster_status)
        return
    with live() as screen:
        screen(nodes_table(cluster_status))


def nodes_table(status: Mapping[str, Any]) -> Table:
    """Returns a table of a cluster's nodes: state, owned shards, rows, bytes and rates.

    Args:
        status: Reply of the metadata node, from `tfhybrid.cluster.launching.status`.
    """
    owners = [each["node"] for each in status["allocation"]]
    rows = [
        [
            *(node["name"], node["role"], node["state"], f"{node['seconds']:.0f} s"),
            *(node["address"], f"{owners.count(node['name'])}"),
            *(
                form(node["numbers"][name]) if name in node["numbers"] else ""
                for name, form in _NUMBERS
            ),
        ]
        for node in status["nodes"]
    ]
    text = ("node", "role", "state", "address")
    columns = ("node", "role", "state", "since", "address", "shards", "rows", "bytes")
    title = f"Nodes, allocation epoch {status['epoch']}"
    return drawn_table(
        [*columns, "updates/s", "rows/s", "in/s", "out/s"], rows, text=text, title=title
    )


@app.command()
def drain(
    file: _File, name: Annotated[str, typer.Argument(help="Name of the node, as in embedding-2.")]
) -> None:
    """Move the shards of a node to the other nodes.

    Returns at once. Without a job, the shards have moved when it returns. A running job moves them,
    with their rows, if it uses callbacks.FollowNodes; otherwise they move when the job has ended.
    They stay if no other embedding node is ready. The node takes part in no new job until it is
    restarted.
    """
    from tfhybrid.cluster import launching
    from tfhybrid.cluster.cluster_file import Cluster

    _show_pending(launching.drain(Cluster.read(file), name))


@app.command()
def add(file: _File) -> None:
    """Start the nodes that were added to a cluster file.

    Returns when they are ready. Without a job, shards have moved to them when it returns. A running
    job moves shards if it uses callbacks.FollowNodes; otherwise they move when the job has ended.
    Needs `launcher: local`, and a cluster that is up.
    """
    from tfhybrid.cluster import launching
    from tfhybrid.cluster.cluster_file import Cluster

    _show_pending(launching.add(Cluster.read(file)))


def _show_pending(shards: int) -> None:
    if shards:
        show(f"The running job moves {shards} shard(s) if it uses callbacks.FollowNodes()")


@app.command()
def down(file: _File) -> None:
    """End the nodes of a cluster file. Returns when all have ended."""
    from tfhybrid.cluster import launching
    from tfhybrid.cluster.cluster_file import Cluster

    launching.down(Cluster.read(file))
