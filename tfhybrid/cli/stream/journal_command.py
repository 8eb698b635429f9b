"""`tfhybrid stream journal`: shows, checks and cuts the journal of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfhybrid.cli.stream.stream_top import Config
from tfhybrid.cli.terminal.console import show, show_json, show_table
from tfhybrid.cli.terminal.options import Json
from tfhybrid.errors import ConfigError, CorruptFileError, TfhybridError

if TYPE_CHECKING:
    from tfhybrid.stream.sync_unit.recovery import JournalLine

Model = Annotated[str, typer.Argument(help="Name of a model under `routes:` in FILE.")]


def journal(
    config: Config,
    model: Model,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Number of records to show.")] = 20,
    check: Annotated[
        bool,
        typer.Option(
            help="Read the bases and all records that a start reads; show those with a fault."
        ),
    ] = False,
    cut: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            help="Take out this record and all after it. Stop the sync unit first.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show, check or cut the journal of a model.

    The sync unit sets records aside that it cannot apply, and says so in its log. With --check
    the status is 1 if there are such records, or if a base or record is damaged. After --cut the
    rows of the updates that were taken out are trained again; their files are kept.

    $ tfhybrid stream journal stream.yaml ctr --check
    """
    from tfhybrid.stream.stream_files import StreamFiles
    from tfhybrid.stream.stream_settings import StreamSettings
    from tfhybrid.stream.sync_unit import recovery

    settings = StreamSettings.read(config)
    models = settings.queue_routes.models
    if model not in models:
        raise ConfigError(f"The models of stream.yaml are {sorted(models)}. Received: '{model}'")
    folder = StreamFiles(settings.folder).models / model
    if cut is not None:
        show(f"{model}: cut before record {cut}; its files are in {recovery.cut(folder, cut)}")
        return
    if not check:
        _show(recovery.last_lines(folder, last), [], as_json)
        return
    lines, damaged = _checked(folder, model)
    faulty = [line for line in lines if line.fault]
    _show(faulty, damaged, as_json)
    if faulty or damaged:
        raise typer.Exit(1)
    if not as_json:
        show(f"{model}: all bases and {len(lines)} records are good")


def _checked(folder: Path, model: str) -> tuple[list[JournalLine], list[str]]:
    """Returns the records of a journal, and the errors of damaged bases and records."""
    from tfhybrid.stream.sync_unit import recovery
    from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
    from tfhybrid.stream.weights import weight_base

    lines: list[JournalLine] = []
    damaged: list[str] = []
    for base in weight_base.newest_first(folder):
        try:
            weight_base.read(base)
        except (CorruptFileError, FileNotFoundError) as error:
            damaged.append(str(error))
    try:
        lines.extend(recovery.checked_lines(folder, LeaseLedger(model)))
    except TfhybridError as error:
        damaged.append(str(error))
    return lines, list(dict.fromkeys(damaged))


def _show(lines: list[JournalLine], damaged: list[str], as_json: bool) -> None:
    if as_json:
        show_json({"records": [line._asdict() for line in lines], "damaged": damaged})
        return
    if lines:
        rows = [[str(each.offset), f"{each.bytes:,}", each.text, each.fault] for each in lines]
        columns = ["record", "bytes", "contents", "fault"]
        show_table(columns, rows, text=["contents", "fault"])
    for text in damaged:
        show(text)
