"""`tfhybrid checkpoint`: commands and options. Other modules of this package do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of, locate, steps
from tfhybrid.cli.checkpoint import (
    difference,
    summary,
    table_export,
    table_import,
    table_rows,
    verification,
)
from tfhybrid.cli.terminal.console import (
    plain,
    show,
    show_error,
    show_json,
)
from tfhybrid.errors import ConfigError

app = typer.Typer(no_args_is_help=True)

Directory = Annotated[
    str, typer.Argument(help="Directory of checkpoints, or the folder of one: a path or a URL.")
]
Step = Annotated[int | None, typer.Option(help="Step of the checkpoint; the newest by default.")]
TableName = Annotated[str, typer.Option("--table", help="Name of the table.")]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]


@app.callback()
def checkpoint() -> None:
    """Show, check, compare, export and change checkpoints."""


@app.command()
def inspect(
    directory: Directory,
    step: Step = None,
    table: Annotated[str | None, typer.Option(help="Show this table.")] = None,
    key: Annotated[
        list[int] | None, typer.Option(help="Show the row of this key; needs --table; repeatable.")
    ] = None,
    string: Annotated[
        list[str] | None,
        typer.Option(help="Show the row of this string's key; needs --table; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a checkpoint's contents; with --table, statistics of its embeddings, or some rows."""
    stored = StoredCheckpoint.open(locate(directory, step))
    if key or string:
        if table is None:
            raise ConfigError("--key and --string need --table")
        rows = table_rows.of_keys(stored, table, key or [], string or [])
        (show_json if as_json else table_rows.show_rows)(rows)
        return
    if table is None:
        contents = summary.of_checkpoint(stored)
        display = summary.show_checkpoint
    else:
        contents = summary.of_table(stored, table)
        display = summary.show_table
    (show_json if as_json else display)(contents)


@app.command()
def verify(
    directory: Directory,
    step: Step = None,
    every: Annotated[
        bool, typer.Option("--all", help="Check all checkpoints of the directory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every file: sizes, checksums, shapes, one row per key. Exit status 1 if one is bad."""
    if every and step is not None:
        raise ConfigError(f"--all cannot be combined with --step. Received: --step {step}")
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
    b: Annotated[str, typer.Argument(help="The checkpoint to compare it with.")],
    as_json: Json = False,
) -> None:
    """Show which rows and dense arrays of B were added, removed or changed since A."""
    stored_a, stored_b = (StoredCheckpoint.open(locate(each)) for each in (a, b))
    changes = difference.between(stored_a, stored_b)
    (show_json if as_json else difference.show_difference)(changes)


@app.command()
def export(
    directory: Directory,
    file: Annotated[Path, typer.Argument(help="The file to write: FILE.npz, FILE.parquet, ...")],
    table: TableName,
    step: Step = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format", help="npz | parquet | records; by default from the file's suffix."
        ),
    ] = None,
    states: Annotated[
        bool, typer.Option("--states", help="Also write the optimizer state.")
    ] = False,
) -> None:
    """Write a table's keys and embeddings to a NumPy or Parquet file, or as binary records."""
    stored = StoredCheckpoint.open(locate(directory, step))
    rows = table_export.export_table(stored, table, file, kind=kind, states=states)
    show(plain(f"{file}: {rows} rows of table {table}"))
    if kind == "records":
        dtype = table_export.record_of(stored.manifest.tables[table].dim)
        show(plain(f"tfhybrid.checkpoint.RecordFile({str(file)!r}, np.dtype({dtype.descr}))"))


@app.command("import")
def import_(
    directory: Directory,
    file: Annotated[Path, typer.Argument(help="Keys and embeddings: FILE.npz or FILE.parquet.")],
    table: TableName,
    output: Annotated[
        Path, typer.Option(help="Directory for the new checkpoint, which has the same step.")
    ],
    step: Step = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop rows that are not in the file.")
    ] = False,
) -> None:
    """Copy a checkpoint and take a table's rows from a file; the original is not changed.

    A row of the file replaces the row with the same key, or is added. Its optimizer state starts
    fresh unless the file contains states (`export --states`).
    """
    stored = StoredCheckpoint.open(locate(directory, step))
    copy, rows = table_import.import_table(stored, table, file, output, replace=replace)
    show(plain(f"{copy}: {rows} rows in table {table}"))
