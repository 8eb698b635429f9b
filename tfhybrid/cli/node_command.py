"""`tfhybrid node`: the processes of a cluster, one at a time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.terminal.help_page import CommandApp
from tfhybrid.cli.terminal.option_groups import grouped

app = CommandApp()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Process:
    """Options of every process of a cluster."""

    token_file: Annotated[Path, typer.Option(metavar="FILE", help="File with the cluster's token.")]
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 for a free one."),
    ] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Node(_Process):
    """Options of a node that is not the metadata node."""

    name: Annotated[str, typer.Option(metavar="NAME", help="Name, unique within the cluster.")]
    metadata: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the metadata node.")
    ]


@app.callback()
def node() -> None:
    """Run one process of a cluster until SIGTERM.

    `tfhybrid nodes up` starts these processes from a file, and restarts them.
    """


@app.command()
@grouped
def metadata(
    state: Annotated[Path, typer.Option(metavar="FILE", help="File of the node's state.")],
    owners: Annotated[
        str, typer.Option(metavar="NAME,...", help="Node that owns each shard of a new cluster.")
    ],
    process: _Process,
    status_port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", help="Port of the page; 0 for a free one."),
    ] = 0,
) -> None:
    """Run a metadata node, which knows the nodes and the owner of each shard."""
    from tfhybrid.cluster import metadata_node
    from tfhybrid.cluster.membership import Membership
    from tfhybrid.cluster.node_options import read_token, set_up_logging

    set_up_logging()
    token, host = read_token(process.token_file), process.listen
    membership = Membership(state, owners.split(","))
    metadata_node.main(membership, token, (host, process.port), (host, status_port))


@app.command()
@grouped
def embedding(node: _Node) -> None:
    """Run an embedding node, which owns rows of one job at a time."""
    from tfhybrid.cluster.node_options import NodeOptions
    from tfhybrid.embedding_nodes import embedding_node

    embedding_node.main(NodeOptions.read(**dataclasses.asdict(node)))


@app.command()
@grouped
def data(
    node: _Node,
    script: Annotated[
        str, typer.Option(metavar="SCRIPT", help="Python file or module that makes the data sets.")
    ],
) -> None:
    """Run a data node, which reads the data sets of a script for trainers.

    The script is imported: what trains must be under `if __name__ == "__main__":`.
    """
    from tfhybrid.cluster.node_options import NodeOptions
    from tfhybrid.data import data_node

    data_node.main(NodeOptions.read(**dataclasses.asdict(node)), script)
