"""`tfhybrid nodes`: processes that own the tables of jobs, started, asked and ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.console import show, show_json, show_table
from tfhybrid.nodes import launching
from tfhybrid.nodes.cluster_file import Cluster

app = typer.Typer(help="Start, show and end nodes that own the tables of jobs.")

_File = Annotated[Path, typer.Argument(help="The cluster file.")]


@app.command()
def up(file: _File) -> None:
    """Start the nodes of a cluster file, and return when they are ready."""
    cluster = Cluster.read(file)
    launching.up(cluster)
    show(f"export TFHYBRID_NODES={cluster.listen}:{cluster.port}")
    show(f"export TFHYBRID_NODES_TOKEN={cluster.token_file}")


@app.command()
def status(
    file: _File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show the nodes, their states and the allocation."""
    found = launching.status(Cluster.read(file))
    if as_json:
        show_json(found)
        return
    show(f"epoch {found['epoch']}")
    rows = [
        [node["name"], node["role"], node["state"], f"{node['seconds']:.0f} s", node["address"]]
        for node in found["nodes"]
    ]
    columns = ("node", "role", "state", "since", "address")
    show_table(columns, rows, text=("node", "role", "state", "address"))


@app.command()
def drain(file: _File, name: Annotated[str, typer.Argument(help="Of the node.")]) -> None:
    """Have a node finish its job and begin no other; it is ready when it is started again."""
    launching.drain(Cluster.read(file), name)


@app.command()
def down(file: _File) -> None:
    """End the nodes of a cluster file."""
    launching.down(Cluster.read(file))
