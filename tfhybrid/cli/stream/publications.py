"""`tfhybrid stream publish`, `rollback`, `serve` and `export`: commands for publications."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfhybrid.cli.stream.stream_top import Config
from tfhybrid.errors import ConfigError, TfhybridError

if TYPE_CHECKING:
    from tfhybrid.checkpoint.storage import Location
    from tfhybrid.stream.stream_settings import StreamSettings

_log = logging.getLogger("tfhybrid.stream")

Model = Annotated[str, typer.Argument(help="Name of a model under `publish:` in FILE.")]
Follow = Annotated[
    float,
    typer.Option(min=0.01, metavar="SECONDS", help="Time between two looks for a publication."),
]


def publish(
    config: Config,
    model: Model,
    anyway: Annotated[bool, typer.Option(help="Publish even if the AUC has fallen.")] = False,
) -> None:
    """Publish the weights of a model now.

    Writes all changes since the last publication, instead of waiting for the next scheduled one.

    $ tfhybrid stream publish stream.yaml ctr
    """
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    publication = settings.remote_unit("publish").publish(model, anyway)
    typer.echo(f"{model}: publication {publication['number']}, {publication['version']} updates")


def rollback(
    config: Config,
    model: Model,
    number: Annotated[
        int | None,
        typer.Argument(show_default="the previous one", help="Number of the publication."),
    ] = None,
    release: Annotated[
        bool, typer.Option(help="Let readers follow the newest publication again.")
    ] = False,
) -> None:
    """Point readers back to an earlier publication.

    They stay there until --release, even if newer publications appear.

    $ tfhybrid stream rollback stream.yaml ctr 41
    $ tfhybrid stream rollback stream.yaml ctr --release
    """
    from tfhybrid.stream.stream_settings import StreamSettings
    from tfhybrid.stream.weights.rollback import release as release_readers
    from tfhybrid.stream.weights.rollback import roll_back

    folder = _folder_of(StreamSettings.read(config), model)
    if release:
        now = release_readers(folder)
        typer.echo(
            f"{model}: readers follow {'nothing' if now is None else f'publication {now.number}'}"
        )
        return
    typer.echo(f"{model}: readers are held at publication {roll_back(folder, number).number}")


def serve(
    config: Config,
    model: Model,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address on which the node listens.")
    ],
    interval: Follow = 1.0,
) -> None:
    """Run a read-only node, until SIGTERM.

    Follows the publications of a model, keeps the newest in shared memory, and answers reads.

    $ tfhybrid stream serve stream.yaml ctr --listen 127.0.0.1:7200
    """
    from tfhybrid.rpc.remote_methods import served
    from tfhybrid.rpc.serving_calls import open_port, serve_calls
    from tfhybrid.serving.read_only_node import ReadOnlyNode
    from tfhybrid.serving.reader import Reader
    from tfhybrid.stream.stream_settings import StreamSettings

    with open_port(listen) as port:
        settings = StreamSettings.read(config)
        folder = str(_folder_of(settings, model))
        with closing(Reader(folder, name=model, memory=settings.memory)) as reader:
            reader.follow(interval)
            calls = served(ReadOnlyNode(reader))
            serve_calls(port, settings.tokens, calls, dict.fromkeys(calls, "read"))


def export(
    config: Config,
    model: Model,
    graph: Annotated[
        Path, typer.Argument(help="Graph that tfhybrid.export.serving_graph has written.")
    ],
    path: Annotated[Path, typer.Argument(help="Model base path of TensorFlow Serving.")],
    interval: Follow = 1.0,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="Number of versions to keep.")] = 2,
    once: Annotated[bool, typer.Option(help="Write the current publication, then exit.")] = False,
) -> None:
    """Write publications as SavedModels, until SIGTERM.

    Each becomes a version below PATH, for a stock TensorFlow Serving, and the oldest are removed.

    $ tfhybrid stream export stream.yaml ctr graph/ /models/ctr --keep 3
    """
    from tfhybrid.serving.reader import Reader
    from tfhybrid.serving.stock_export import StockExport
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    folder = str(_folder_of(settings, model))
    with closing(Reader(folder, name=model, memory=settings.memory)) as reader:
        exports = StockExport(reader, graph, path, keep=keep)
        while True:
            try:
                written = exports.export()
            except (OSError, TfhybridError) as error:
                if once:
                    raise
                _log.error("%s. Trying again", error)
            else:
                if written is not None:
                    typer.echo(f"{model}: {written}")
            if once:
                return
            time.sleep(interval)


def _folder_of(settings: StreamSettings, model: str) -> Location:
    from tfhybrid.checkpoint import storage

    rules = settings.publish_rules
    if model not in rules:
        raise ConfigError(f"stream.yaml publishes {sorted(rules)}. Received: model '{model}'")
    return storage.location(rules[model].folder)
