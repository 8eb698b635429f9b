"""`tfhybrid nodes`: commands for the processes that own the tables of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.terminal.console import live, show, show_json
from tfhybrid.cli.terminal.node_table import nodes_table
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster

app = typer.Typer(help="Start, show and end nodes that own the tables of jobs.")

_File = Annotated[Path, typer.Argument(help="The cluster file.")]


@app.command()
def up(file: _File) -> None:
    """Start the nodes of a cluster file. Returns when they are ready."""
    cluster = Cluster.read(file)
    launching.up(cluster)
    show(f"export TFHYBRID_NODES={cluster.listen}:{cluster.port}")
    show(f"export TFHYBRID_NODES_TOKEN={cluster.token_file}")


@app.command()
def status(
    file: _File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show the nodes, their states and the allocation."""
    cluster_status = launching.status(Cluster.read(file))
    if as_json:
        show_json(cluster_status)
        return
    with live() as screen:
        screen(nodes_table(cluster_status))


@app.command()
def drain(file: _File, name: Annotated[str, typer.Argument(help="Name of the node.")]) -> None:
    """Move a node's rows to the other nodes. It takes part in no new job until it is restarted."""
    _show_pending(launching.drain(Cluster.read(file), name))


@app.command()
def add(file: _File) -> None:
    """Start the nodes that were added to the cluster file, and plan shards for them.

    A running job moves its shards itself, if it uses `callbacks.FollowNodes`. Needs `launcher:
    local`, and a cluster that is up.
    """
    _show_pending(launching.add(Cluster.read(file)))


def _show_pending(shards: int) -> None:
    if shards:
        show(f"The running job moves {shards} shard(s) if it uses callbacks.FollowNodes()")


@app.command()
def down(file: _File) -> None:
    """End the nodes of a cluster file."""
    launching.down(Cluster.read(file))
