"""`tfhybrid stream publish`, `rollback`, `serve` and `export`: what concerns publications."""

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
    anyway: Annotated[bool, typer.Option(help="Even if the AUC has fallen.")] = False,
) -> None:
    """Publish what has changed now, instead of when it is due."""
    settings = StreamSettings.read(config)
    found = settings.remote_model(model, "publish").publish(anyway=anyway)
    typer.echo(f"{model}: publication {found['number']}, {found['version']} updates")


def rollback(
    config: Config,
    model: Model,
    number: Annotated[
        int | None, typer.Argument(help="Of the publication; by default the one before.")
    ] = None,
    release: Annotated[bool, typer.Option(help="Let readers go on to the newest one.")] = False,
) -> None:
    """Point readers back to an earlier publication; they stay there until --release."""
    place = _place(StreamSettings.read(config), model)
    if release:
        now = release_readers(place)
        typer.echo(f"{model}: readers go on to {'nothing' if now is None else now.number}")
        return
    typer.echo(f"{model}: readers are held at publication {roll_back(place, number).number}")


def serve(
    config: Config,
    model: Model,
    listen: Annotated[str, typer.Option(help="HOST:PORT to answer at.")],
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two looks for a publication.")
    ] = 1.0,
) -> None:
    """Run a read-only node, which follows publications and answers reads, until SIGTERM."""
    from tfhybrid.serving.read_only_node import reader_calls
    from tfhybrid.serving.reader import Reader

    settings = StreamSettings.read(config)
    folder = str(_place(settings, model))
    with closing(Reader(folder, name=model, memory=settings.memory)) as reader:
        reader.follow(interval)
        serve_calls(listen, settings.token, reader_calls(reader))


def export(
    config: Config,
    model: Model,
    graph: Annotated[Path, typer.Argument(help="Of tfhybrid.export.serving_graph.")],
    path: Annotated[Path, typer.Argument(help="What TensorFlow Serving calls the base path.")],
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two looks for a publication.")
    ] = 1.0,
    keep: Annotated[int, typer.Option(min=1, help="How many versions are kept.")] = 2,
    once: Annotated[bool, typer.Option(help="Write what there is now, and end.")] = False,
) -> None:
    """Write publications as SavedModels, for stock TensorFlow Serving, until SIGTERM."""
    from tfhybrid.serving.reader import Reader
    from tfhybrid.serving.stock_export import StockExport

    settings = StreamSettings.read(config)
    folder = str(_place(settings, model))
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


def _place(settings: StreamSettings, model: str) -> Location:
    rules = settings.publish_rules
    if model not in rules:
        raise ConfigError(f"stream.yaml publishes {sorted(rules)}. Received: model '{model}'")
    return storage.location(rules[model].folder)
