"""The command `tfhybrid` and what all its parts share: the version, and how errors look."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tfhybrid._version import __version__
from tfhybrid.cli import checkpoint, data, nodes, store
from tfhybrid.cli.console import show_error
from tfhybrid.cli.doctor import doctor
from tfhybrid.cli.plan import plan
from tfhybrid.cli.top import top
from tfhybrid.errors import TfhybridError


class _Commands(TyperGroup):
    """Makes an error that a user can do something about a line on standard error, and status 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `tfhybrid ... | head`; typer ends quietly
            raise
        except (TfhybridError, OSError) as error:
            show_error(str(error))
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(data.app, name="data")
app.add_typer(nodes.app, name="nodes")
app.add_typer(store.app, name="store")
app.command()(doctor)
app.command()(plan)
app.command()(top)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tfhybrid {__version__}")
        raise typer.Exit


@app.callback()
def tfhybrid(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Training of models whose embedding tables dwarf everything else."""
