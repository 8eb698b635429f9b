"""The command `tfhybrid`, its version option, and its error output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tfhybrid._version import __version__
from tfhybrid.cli import nodes_command, store_command
from tfhybrid.cli.checkpoint import checkpoint_command
from tfhybrid.cli.data import data_command
from tfhybrid.cli.doctor.doctor_command import doctor
from tfhybrid.cli.plan_command import plan
from tfhybrid.cli.stream import stream_command
from tfhybrid.cli.terminal.console import show_error
from tfhybrid.cli.top_command import top
from tfhybrid.cli.train.train_command import train
from tfhybrid.errors import TfhybridError


class _Commands(TyperGroup):
    """Group of commands that reports errors which a user can fix as one line, with status 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for command in _all_commands(self):
            for option in command.get_params(ctx):
                if getattr(option, "is_flag", False):
                    # Otherwise help shows `--json <bool>`, as if it took a value.
                    option.metavar = ""
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `tfhybrid ... | head`; typer ends quietly
            raise
        except (TfhybridError, OSError) as error:
            show_error(str(error))
            raise typer.Exit(1) from error


def _all_commands(group: Any) -> Iterator[Any]:
    yield group
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            yield from _all_commands(command)
        else:
            yield command


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.add_typer(checkpoint_command.app, name="checkpoint")
app.add_typer(data_command.app, name="data")
app.add_typer(nodes_command.app, name="nodes")
app.add_typer(store_command.app, name="store")
app.add_typer(stream_command.app, name="stream")
app.command()(doctor)
app.command()(plan)
app.command()(top)
app.command()(train)


def _show_version(requested: bool) -> None:
    if requested:
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
    """Train models whose embedding tables dwarf everything else."""
