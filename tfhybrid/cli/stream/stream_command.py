"""`tfhybrid stream`: commands that run the processes of online training, and feed them."""

from __future__ import annotations

import codecs
import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfhybrid.cli.stream import publications
from tfhybrid.cli.stream.audit_command import audit
from tfhybrid.cli.stream.journal_command import Model, journal
from tfhybrid.cli.stream.stream_top import Config, top
from tfhybrid.cli.terminal.console import show
from tfhybrid.cli.terminal.help_page import CommandApp
from tfhybrid.errors import StreamError

if TYPE_CHECKING:
    from tfhybrid.stream.provider.provider import Provider
    from tfhybrid.stream.queues.queue import Record

_log = logging.getLogger("tfhybrid.stream")

_PAUSE_SECONDS = 1.0

app = CommandApp()


@app.callback()
def stream() -> None:
    """Run, feed and watch the processes of online training."""


@app.command()
def sync(config: Config) -> None:
    """Run the sync unit, until SIGTERM.

    It owns the weights that trainers update, and publishes them. Its files are in `folder:` of
    FILE.
    """
    from tfhybrid.rpc.serving_calls import open_port, serve_calls
    from tfhybrid.stream.call_rights import CALL_RIGHTS
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    with open_port(settings.sync) as port, closing(settings.sync_unit()) as unit:
        serve_calls(port, settings.tokens, unit.calls, CALL_RIGHTS)


@app.command()
def provide(config: Config) -> None:
    """Run the data provider, until SIGTERM.

    It stores rows in queues and leases them to trainers. Start the sync unit before it.
    """
    from tfhybrid.rpc.remote_methods import served
    from tfhybrid.rpc.serving_calls import open_port, serve_calls
    from tfhybrid.stream.call_rights import CALL_RIGHTS
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    with (
        # First: opening the queues ends the leases of a provider that runs already.
        open_port(settings.provider) as port,
        closing(settings.open_provider()) as provider,
        closing(settings.offset_committer()),
    ):
        serve_calls(port, settings.tokens, served(provider), CALL_RIGHTS)


@app.command()
def run(
    config: Config,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON when a process starts or ends.")
    ] = False,
) -> None:
    """Run all processes of online training on this machine.

    They are the sync unit (which owns the weights), the data provider (which leases rows to
    trainers) and the trainers under `trainers:` in FILE. A process that fails is started again.
    Ends at SIGTERM, or when all trainers have ended with status 0.

    $ tfhybrid stream run stream.yaml
    """
    from tfhybrid.cluster.node_options import set_up_logging
    from tfhybrid.stream import running

    set_up_logging()

    def report(states: dict[str, Any]) -> None:
        if as_json:
            typer.echo(json.dumps(states))
            return
        alive = (
            f"{name} {process['pid']}"
            for name, process in states.items()
            if process["pid"] is not None
        )
        show(f"running: {', '.join(alive)}")

    running.run(config, report)


@app.command()
def feed(
    config: Config,
    files: Annotated[
        list[Path], typer.Argument(help="Files with lines of JSON, or Arrow IPC streams.")
    ],
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines of JSON in a record of a queue.")
    ] = 1000,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="N", show_default="no limit", help="Lines of JSON per second."
        ),
    ] = None,
) -> None:
    """Put the rows of files into their queues.

    A data provider must run. Each row is put once: feeding a file again changes nothing.

    $ tfhybrid stream feed stream.yaml clicks-*.jsonl
    """
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    provider = settings.remote_provider("feed")
    begun, sent = time.monotonic(), 0
    for file in files:
        new = 0
        for number, (count, record) in enumerate(_records(file, rows)):
            if rate is not None:
                time.sleep(max(begun + sent / rate - time.monotonic(), 0.0))
            new += _put(provider, str(file.absolute()), number, record)
            sent += count
        typer.echo(f"{file}: {new} new rows")


@app.command()
def retry(config: Config, model: Model) -> None:
    """Put rows that were set aside back at the head of their queues.

    They are those of leases under which as many trainers have died as `max_deaths:` in FILE says.
    `tfhybrid stream top` names them.

    $ tfhybrid stream retry stream.yaml ctr
    """
    from tfhybrid.stream.stream_settings import StreamSettings

    rows = StreamSettings.read(config).remote_provider("retry").retry(model)
    for queue, count in rows.items():
        typer.echo(f"{model}: {count} rows of queue {queue} are leased again")


app.command()(publications.publish)
app.command()(publications.rollback)
app.command()(publications.serve)
app.command()(publications.export)
app.command()(audit)
app.command()(journal)
app.command()(top)


def _put(provider: Provider, producer: str, number: int, record: Record) -> int:
    """Puts a record, and returns the number of new rows.

    Tries again until it succeeds: models may be too far behind, or a broker may be unavailable.
    """
    while True:
        try:
            return provider.put(producer, number, record)
        except StreamError as error:
            _log.warning("%s. Trying again", error)
            time.sleep(_PAUSE_SECONDS)


def _records(file: Path, rows: int) -> Iterator[tuple[int, Record]]:
    """Yields (number of lines, record) of a file.

    Lines of objects are put together. A line that is a list is a record, and so is a list over
    several lines or an Arrow stream, which counts as one line.
    """
    from tfhybrid.stream.queues.queue import Record
    from tfhybrid.stream.queues.rows import of_lines

    content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    first_byte = content.lstrip()[:1]
    lines = [line for line in content.splitlines() if line.strip()] if first_byte in b"[{" else []
    if first_byte == b"{":
        for first in range(0, len(lines), rows):
            piece = lines[first : first + rows]
            yield len(piece), of_lines(piece)
    elif len(lines) > 1 and all(map(_is_list, lines)):
        yield from ((1, Record(line)) for line in lines)
    elif first_byte:
        yield 1, Record(content)


def _is_list(line: bytes) -> bool:
    text = line.strip()
    return text.startswith(b"[") and text.endswith(b"]")
