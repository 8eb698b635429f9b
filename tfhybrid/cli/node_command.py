"""`tfhybrid node`: the processes of a cluster, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.terminal.help_page import CommandApp

app = CommandApp()

_TokenFile = Annotated[Path, typer.Option(metavar="FILE", help="File with the cluster's token.")]
_Listen = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")]
_Port = Annotated[
    int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 for a free one.")
]
_Name = Annotated[str, typer.Option(metavar="NAME", help="Name, unique within the cluster.")]
_Metadata = Annotated[
    str, typer.Option("--metadata", metavar="HOST:PORT", help="Address of the metadata node.")
]


@app.callback()
def node() -> None:
    """Run one process of a cluster until SIGTERM.

    `tfhybrid nodes up` starts these processes from a file, and restarts them.
    """


@app.command()
def metadata(
    state: Annotated[Path, typer.Option(metavar="FILE", help="File of the node's state.")],
    token_file: _TokenFile,
    owners: Annotated[
        str, typer.Option(metavar="NAME,...", help="Names of the first owners of each shard.")
    ],
    listen: _Listen = "127.0.0.1",
    port: _Port = 0,
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
    token = read_token(token_file)
    membership = Membership(state, owners.split(","))
    metadata_node.main(membership, token, (listen, port), (listen, status_port))


@app.command()
def embedding(
    name: _Name,
    metadata_node: _Metadata,
    token_file: _TokenFile,
    listen: _Listen = "127.0.0.1",
    port: _Port = 0,
) -> None:
    """Run an embedding node, which owns rows of one job at a time."""
    from tfhybrid.cluster.node_options import NodeOptions
    from tfhybrid.embedding_nodes import embedding_node

    embedding_node.main(NodeOptions.read(name, metadata_node, token_file, listen, port))


@app.command()
def data(
    name: _Name,
    metadata_node: _Metadata,
    token_file: _TokenFile,
    script: Annotated[
        str, typer.Option(metavar="SCRIPT", help="Python file or module that makes the data sets.")
    ],
    listen: _Listen = "127.0.0.1",
    port: _Port = 0,
) -> None:
    """Run a data node, which reads the data sets of a script for trainers.

    The script is imported: what trains must be under `if __name__ == "__main__":`.
    """
    from tfhybrid.cluster.node_options import NodeOptions
    from tfhybrid.data import data_node

    data_node.main(NodeOptions.read(name, metadata_node, token_file, listen, port), script)
