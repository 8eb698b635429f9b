"""The command `tfhybrid`: its groups by task, its version option, and its error output."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typing_extensions import override

from tfhybrid._version import __version__
from tfhybrid.cli import node_command, nodes_command, store_command
from tfhybrid.cli.checkpoint import checkpoint_command
from tfhybrid.cli.data import data_command
from tfhybrid.cli.doctor.doctor_command import doctor
from tfhybrid.cli.new_command import new
from tfhybrid.cli.plan_command import plan
from tfhybrid.cli.stream import stream_command
from tfhybrid.cli.terminal.console import show_error
from tfhybrid.cli.terminal.help_page import CommandApp, HelpfulGroup
from tfhybrid.cli.top_command import top
from tfhybrid.cli.train.train_command import train
from tfhybrid.errors import TfhybridError

# Tasks, in the order of the help and of docs/command_line.md. A command of another task comes last.
TASKS = ("Before training", "Train", "Watch a job", "Checkpoints", "Clusters", "Online training")


class _Commands(HelpfulGroup):
    """Group of commands that reports errors which a user can fix as one line, with status 1."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        def task(name: str) -> int:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            return TASKS.index(panel) if panel in TASKS else len(TASKS)

        return sorted(super().list_commands(ctx), key=task)

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `tfhybrid ... | head`; typer ends quietly
            raise
        except (TfhybridError, OSError) as error:
            show_error(str(error))
            raise typer.Exit(1) from error


app = CommandApp(cls=_Commands)
app.command(rich_help_panel="Before training")(new)
app.command(rich_help_panel="Before training")(doctor)
app.command(rich_help_panel="Before training")(plan)
app.add_typer(data_command.app, name="data", rich_help_panel="Before training")
app.command(rich_help_panel="Train")(train)
app.command(rich_help_panel="Watch a job")(top)
app.add_typer(store_command.app, name="store", rich_help_panel="Watch a job")
app.add_typer(checkpoint_command.app, name="checkpoint", rich_help_panel="Checkpoints")
app.add_typer(nodes_command.app, name="nodes", rich_help_panel="Clusters")
app.add_typer(node_command.app, name="node", rich_help_panel="Clusters")
app.add_typer(stream_command.app, name="stream", rich_help_panel="Online training")


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
    """Train Keras models with large embedding tables.

    COMMAND --help shows the options of a command, with examples.
    """
