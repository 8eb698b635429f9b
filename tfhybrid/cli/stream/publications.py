"""`tfhybrid stream publish`, `rollback`, `serve` and `export`: commands for publications."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.errors import ConfigError, TfhybridError
from tfhybrid.rpc.serving_calls import serve_calls
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.weights.rollback import release as release_readers
from tfhybrid.stream.weights.rollback import roll_back

_log = logging.getLogger("tfhybrid.stream")

Config = Annotated[Path, typer.Argument(help="stream.yaml: queues, columns, routes, models.")]
Model = Annotated[str, typer.Argument(help="The target model.")]


def publish(
    config: Config,
    model: Model,
    anyway: Annotated[bool, typer.Option(help="Publish even if the AUC has fallen.")] = False,
) -> None:
    """Publish all changes now, instead of at the next scheduled time."""
    settings = StreamSettings.read(config)
    publication = settings.remote_model(model, "publish").publish(anyway=anyway)
    typer.echo(f"{model}: publication {publication['number']}, {publication['version']} updates")


def rollback(
    config: Config,
    model: Model,
    number: Annotated[
        int | None, typer.Argument(help="Number of the publication; by default the previous one.")
    ] = None,
    release: Annotated[
        bool, typer.Option(help="Let readers follow the newest publication again.")
    ] = False,
) -> None:
    """Point readers back to an earlier publication. They stay there until --release."""
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
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on.")],
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two checks for a publication.")
    ] = 1.0,
) -> None:
    """Run a read-only node until SIGTERM. It follows publications and answers reads."""
    from tfhybrid.serving.read_only_node import reader_calls
    from tfhybrid.serving.reader import Reader

    settings = StreamSettings.read(config)
    folder = str(_folder_of(settings, model))
    with closing(Reader(folder, name=model, memory=settings.memory)) as reader:
        reader.follow(interval)
        serve_calls(listen, settings.token, reader_calls(reader))


def export(
    config: Config,
    model: Model,
    graph: Annotated[Path, typer.Argument(help="Graph written by tfhybrid.export.serving_graph.")],
    path: Annotated[Path, typer.Argument(help="Model base path of TensorFlow Serving.")],
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two checks for a publication.")
    ] = 1.0,
    keep: Annotated[int, typer.Option(min=1, help="Number of versions to keep.")] = 2,
    once: Annotated[bool, typer.Option(help="Write the current publication, then exit.")] = False,
) -> None:
    """Write publications as SavedModels for stock TensorFlow Serving, until SIGTERM."""
    from tfhybrid.serving.reader import Reader
    from tfhybrid.serving.stock_export import StockExport

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
    rules = settings.publish_rules
    if model not in rules:
        raise ConfigError(f"stream.yaml publishes {sorted(rules)}. Received: model '{model}'")
    return storage.location(rules[model].folder)
