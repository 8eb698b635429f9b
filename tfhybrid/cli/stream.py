"""`tfhybrid stream`: the processes of online training, and what feeds them."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli import publications
from tfhybrid.cli.stream_top import top
from tfhybrid.errors import StreamError
from tfhybrid.stream.provider_calls import RemoteProvider, provider_calls
from tfhybrid.stream.queue import Record
from tfhybrid.stream.remote import Remote
from tfhybrid.stream.serving_calls import serve_calls
from tfhybrid.stream.settings import StreamSettings

_log = logging.getLogger("tfhybrid.stream")

_PAUSE_SECONDS = 1.0

app = typer.Typer(no_args_is_help=True, help="Online training: provider, sync unit, feeding.")

app.command()(publications.publish)
app.command()(publications.rollback)
app.command()(publications.serve)
app.command()(publications.export)
app.command()(top)

Config = Annotated[Path, typer.Argument(help="stream.yaml: queues, columns, routes, models.")]


@app.command()
def sync(config: Config) -> None:
    """Run the sync unit, which has the weights, until SIGTERM."""
    settings = StreamSettings.read(config)
    with closing(settings.sync_unit()) as unit:
        serve_calls(settings.sync, settings.token, unit.calls)


@app.command()
def provide(config: Config) -> None:
    """Run the data provider, which hands out rows, until SIGTERM."""
    settings = StreamSettings.read(config)
    with closing(settings.open_provider()) as provider, closing(settings.offset_committer()):
        serve_calls(settings.provider, settings.token, provider_calls(provider))


@app.command()
def feed(
    config: Config,
    files: Annotated[list[Path], typer.Argument(help="Lines of JSON, or Arrow IPC streams.")],
    rows: Annotated[int, typer.Option(min=1, help="Lines of JSON in a record.")] = 1000,
) -> None:
    """Put the rows of files into their queues; a file that is fed again changes nothing."""
    settings = StreamSettings.read(config)
    provider = RemoteProvider(Remote(settings.provider, settings.token, "feed", "provider"))
    for file in files:
        new = sum(
            _put(provider, str(file.absolute()), number, record)
            for number, record in enumerate(_records(file, rows))
        )
        typer.echo(f"{file}: {new} new rows")


def _put(provider: RemoteProvider, producer: str, number: int, record: Record) -> int:
    """Puts a record, as often as it takes: models may be too far behind, or a broker away."""
    while True:
        try:
            return provider.put(producer, number, record)
        except StreamError as error:
            _log.warning("%s. Trying again", error)
            time.sleep(_PAUSE_SECONDS)


def _records(file: Path, rows: int) -> list[Record]:
    content = file.read_bytes()
    if content.lstrip()[:1] != b"{":
        return [Record(content)]
    lines = [line for line in content.splitlines() if line.strip()]
    pieces = (lines[first : first + rows] for first in range(0, len(lines), rows))
    return [Record(b"[" + b",".join(piece) + b"]") for piece in pieces]
