"""`tfhybrid checkpoint`: commands and options. Other modules of this package do the work.

They are imported by the commands, so that help and completion are quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.terminal.console import (
    plain,
    show,
    show_error,
    show_json,
)
from tfhybrid.cli.terminal.help_page import CommandApp
from tfhybrid.cli.terminal.options import Json
from tfhybrid.errors import ConfigError

app = CommandApp()

Directory = Annotated[
    str,
    typer.Argument(help="Directory of checkpoints, or folder of one checkpoint; a path or a URL."),
]
Step = Annotated[
    int | None,
    typer.Option(metavar="N", show_default="the newest", help="Step of the checkpoint."),
]
TableName = Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the table.")]


@app.callback()
def checkpoint() -> None:
    """Show, check, compare and export checkpoints, or copy them with changes.

    The commands work on files: no job has to run, and no command changes a checkpoint. TensorFlow
    is imported for URLs and for `inspect --string` only.
    """


@app.command()
def inspect(
    directory: Directory,
    step: Step = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Table to show instead of the checkpoint.")
    ] = None,
    key: Annotated[
        list[int] | None,
        typer.Option(metavar="KEY", help="Key whose row to show; needs --table; repeatable."),
    ] = None,
    string: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="String whose key's row to show; needs --table; repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the contents of a checkpoint, of a table, or of some rows.

    Without --table it shows step, time, versions, and the size of each table. With --table it shows
    the range of the table's keys, the norms of its embeddings, rows with NaN, and the first rows;
    with --key or --string, only the rows of these keys.

    $ tfhybrid checkpoint inspect checkpoints/ --table item --key 7
    """
    from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
    from tfhybrid.cli.checkpoint import summary, table_rows

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
    """Check that every file of a checkpoint is intact.

    Compares sizes, checksums and shapes, and checks that each key has one row. Damage is named on
    standard error, and the exit status is then 1.

    $ tfhybrid checkpoint verify checkpoints/ --all
    """
    from tfhybrid.checkpoint import storage
    from tfhybrid.checkpoint.stored import folder_of, locate, steps
    from tfhybrid.cli.checkpoint import verification

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
    a: Annotated[
        str, typer.Argument(help="Folder of the older checkpoint, or a directory, for its newest.")
    ],
    b: Annotated[str, typer.Argument(help="Folder or directory of the newer checkpoint.")],
    as_json: Json = False,
) -> None:
    """Compare two checkpoints.

    Shows which rows and dense arrays of B were added, removed or changed since A. States of random
    generators are only counted, because they differ unless both runs have set the same seed.

    $ tfhybrid checkpoint diff old/ new/step-0000000200
    """
    from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
    from tfhybrid.cli.checkpoint import difference

    stored_a, stored_b = (StoredCheckpoint.open(locate(each)) for each in (a, b))
    changes = difference.between(stored_a, stored_b)
    (show_json if as_json else difference.show_difference)(changes)


@app.command()
def export(
    directory: Directory,
    file: Annotated[Path, typer.Argument(help="File to write, such as item.npz or item.parquet.")],
    table: TableName,
    step: Step = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            show_default="the file's suffix",
            help="Format of the file: npz, parquet or records.",
        ),
    ] = None,
    states: Annotated[
        bool, typer.Option("--states", help="Also write the optimizer state.")
    ] = False,
) -> None:
    """Write a table's keys and embeddings to a file.

    The file appears when it is complete, and replaces an older one. The format records is binary
    and is read by tfhybrid.checkpoint.RecordFile.

    $ tfhybrid checkpoint export checkpoints/ item.parquet --table item --states
    """
    from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
    from tfhybrid.cli.checkpoint import table_export

    stored = StoredCheckpoint.open(locate(directory, step))
    rows = table_export.export_table(stored, table, file, kind=kind, states=states)
    show(plain(f"{file}: {rows} rows of table {table}"))
    if kind == "records":
        dtype = table_export.record_of(stored.manifest.tables[table].dim)
        show(plain(f"tfhybrid.checkpoint.RecordFile({str(file)!r}, np.dtype({dtype.descr}))"))


@app.command("import")
def import_(
    directory: Directory,
    file: Annotated[Path, typer.Argument(help="File of keys and embeddings, .npz or .parquet.")],
    table: TableName,
    output: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY", help="Directory for the new checkpoint, which has the same step."
        ),
    ],
    step: Step = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop rows that are not in the file.")
    ] = False,
) -> None:
    """Copy a checkpoint, with a table's rows from a file.

    The original is not changed. A row of the file replaces the row with the same key, or is added.
    Its optimizer state starts fresh, unless the file was written by export --states.

    $ tfhybrid checkpoint import old/ item.npz --table item --output new/
    """
    from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
    from tfhybrid.cli.checkpoint import table_import

    stored = StoredCheckpoint.open(locate(directory, step))
    copy, rows = table_import.import_table(stored, table, file, output, replace=replace)
    show(plain(f"{copy}: {rows} rows in table {table}"))
