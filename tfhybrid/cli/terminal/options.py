"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Interval = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two readings.")
]
Prometheus = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        metavar="PORT",
        help="Port on which to serve Prometheus, instead of showing a table.",
    ),
]
