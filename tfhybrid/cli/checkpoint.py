"""`tfhybrid checkpoint`: the commands and their options; what they do is in the modules beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of, locate, steps
from tfhybrid.cli import difference, summary, table_export, table_import, verification
from tfhybrid.cli.console import plain, show, show_error, show_json
from tfhybrid.errors import ConfigError

app = typer.Typer(no_args_is_help=True)

Directory = Annotated[
    str, typer.Argument(help="Where checkpoints are kept, or the folder of one: a path or a URL.")
]
Step = Annotated[
    int | None, typer.Option(help="Which checkpoint of the directory; by default the newest.")
]
TableName = Annotated[str, typer.Option("--table", help="Name of the table.")]
Json = Annotated[
    bool, typer.Option("--json", help="JSON on standard output, and nothing else there.")
]


@app.callback()
def checkpoint() -> None:
    """Look into checkpoints, check, compare, export and change them."""


@app.command()
def inspect(
    directory: Directory,
    step: Step = None,
    table: Annotated[str | None, typer.Option(help="Look into this table's rows.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a checkpoint holds; with --table also what its embeddings look like."""
    stored = StoredCheckpoint.open(locate(directory, step))
    if table is None:
        found = summary.of_checkpoint(stored)
        display = summary.show_checkpoint
    else:
        found = summary.of_table(stored, table)
        display = summary.show_table
    (show_json if as_json else display)(found)


@app.command()
def verify(
    directory: Directory,
    step: Step = None,
    every: Annotated[bool, typer.Option("--all", help="All checkpoints of the directory.")] = False,
    as_json: Json = False,
) -> None:
    """Check every file: sizes, checksums, shapes, one row per key. Exit status 1 if one is bad."""
    if every and step is not None:
        raise ConfigError(f"--all is every step. Received: --step {step} too")
    path = storage.location(directory)
    folders = [folder_of(path, each) for each in steps(directory)] if every else []
    folders = folders or [locate(directory, step)]
    reports = verification.verify(folders)
    if as_json:
        show_json(reports)
    for report in reports:
        for problem in report["problems"]:
            show_error(problem["message"])
        if not (as_json or report["problems"]):
            show(plain(f"{report['folder']}: {report['files']} files, all good"))
    if any(report["problems"] for report in reports):
        raise typer.Exit(1)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="A checkpoint's folder, or a directory's newest.")],
    b: Annotated[str, typer.Argument(help="The checkpoint that it is compared with.")],
    as_json: Json = False,
) -> None:
    """Show which rows and dense arrays of B were added, removed or changed since A."""
    stored_a, stored_b = (StoredCheckpoint.open(locate(each)) for each in (a, b))
    found = difference.between(stored_a, stored_b)
    (show_json if as_json else difference.show_difference)(found)


@app.command()
def export(
    directory: Directory,
    file: Annotated[Path, typer.Argument(help="What to write: FILE.npz or FILE.parquet.")],
    table: TableName,
    step: Step = None,
    states: Annotated[bool, typer.Option("--states", help="The optimizer state too.")] = False,
) -> None:
    """Write a table's keys and embeddings to a NumPy or Parquet file."""
    stored = StoredCheckpoint.open(locate(directory, step))
    rows = table_export.export_table(stored, table, file, states=states)
    show(plain(f"{file}: {rows} rows of table {table}"))


@app.command("import")
def import_(
    directory: Directory,
    file: Annotated[Path, typer.Argument(help="Keys and embeddings: FILE.npz or FILE.parquet.")],
    table: TableName,
    output: Annotated[
        Path, typer.Option(help="Directory in which the new checkpoint is made, of the same step.")
    ],
    step: Step = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop the rows that the file does not have.")
    ] = False,
) -> None:
    """Copy a checkpoint with a table's rows taken from a file; no checkpoint is changed.

    Rows of the file overwrite those of the same key and are added where there is none. Their
    optimizer state starts fresh, unless the file has it, as `export --states` writes it.
    """
    stored = StoredCheckpoint.open(locate(directory, step))
    made, rows = table_import.import_table(stored, table, file, output, replace=replace)
    show(plain(f"{made}: {rows} rows in table {table}"))
