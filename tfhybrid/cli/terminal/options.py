"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Interval = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two readings.")
]
Count = Annotated[
    int | None, typer.Option(min=1, metavar="N", show_default="no end", help="Number of readings.")
]
Prometheus = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Address at which to serve Prometheus, instead of showing a table; only to this host "
        "without HOST, to all with 0.0.0.0.",
    ),
]
