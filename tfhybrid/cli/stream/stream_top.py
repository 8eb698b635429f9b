"""`tfhybrid stream top`: metrics of the provider, the sync unit and readers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tfhybrid.cli.terminal.console import (
    live,
    plain,
    show,
    show_json,
)
from tfhybrid.errors import StreamError
from tfhybrid.monitoring.metrics import STREAM_LAG, Metric
from tfhybrid.rpc.remote import Remote
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit.stats import from_dict

_PATIENCE_SECONDS = 2.0

Config = Annotated[Path, typer.Argument(help="stream.yaml: queues, columns, routes, models.")]


class Processes:
    """Connections to the processes of a stream, for reading their metrics. Not thread-safe.

    Args:
        settings: Settings of the stream.
        readers: Addresses of read-only nodes, `host:port` each.

    Attributes:
        silent: Error texts of the processes that did not answer the last `look`.
    """

    def __init__(self, settings: StreamSettings, readers: list[str]) -> None:
        self._models = Routes(**settings.routes).models

        def remote(address: str, peer: str) -> Remote:
            return Remote(address, settings.token, "top", peer, patience=_PATIENCE_SECONDS)

        self._provider = remote(settings.provider, "provider")
        self._others = [
            remote(settings.sync, "sync unit"),
            *(remote(address, "read-only node") for address in readers),
        ]
        self.silent: list[str] = []

    def look(self) -> list[tuple[Metric, dict[str, float]]]:
        """Returns the metrics of all processes of the stream. Skips those that do not answer.

        Returns:
            Pairs of a metric and its values by label.
        """
        self.silent = []
        lag: dict[str, float] = {}
        for model in self._models:
            records = self._ask(self._provider, "lag", {"model": model})
            lag |= {f"{model}/{queue}": float(count) for queue, count in records.items()}
        of_provider = [(STREAM_LAG, lag)] if lag else []
        return [*of_provider, *(each for remote in self._others for each in self._stats(remote))]

    def _stats(self, remote: Remote) -> Iterator[tuple[Metric, dict[str, float]]]:
        yield from from_dict(self._ask(remote, "stats", {}))

    def _ask(self, remote: Remote, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            response: dict[str, Any] = remote.ask(call, arguments)[0]
            return response
        except StreamError as error:
            self.silent.append(str(error))
            return {}


def top(
    config: Config,
    reader: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a read-only node; repeatable.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two readings.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of readings; by default until Ctrl-C.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON on standard output.")
    ] = False,
    prometheus: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve Prometheus on this port instead of showing a table."
        ),
    ] = None,
) -> None:
    """Watch a stream: lag, staleness, publications and freshness. Ends at Ctrl-C."""
    processes = Processes(StreamSettings.read(config), reader or [])
    looks = itertools.count() if count is None else range(count)
    if prometheus is not None:
        _answer(processes, prometheus, interval, looks)
        return
    with live() as screen:
        for number in looks:
            if number:
                time.sleep(interval)
            metrics = processes.look()
            if as_json:
                show_json({metric.name: values for metric, values in metrics})
            else:
                screen(drawn(metrics, processes.silent))


def _answer(processes: Processes, port: int, interval: float, looks: Any) -> None:
    from tfhybrid.monitoring.prometheus import Endpoint

    endpoint = Endpoint("stream", processes.look, port, "0.0.0.0")
    show(plain(f"Metrics of the stream: port {endpoint.port}, /metrics"))
    try:
        for _ in looks:
            time.sleep(interval)
    finally:
        endpoint.close()


def drawn(metrics: list[tuple[Metric, dict[str, float]]], silent: list[str]) -> Table:
    """Returns metrics as a table: a row for each model, queue or reader.

    Args:
        metrics: Metrics, each with its values by label.
        silent: Error texts of the processes that did not answer; shown as the title.
    """
    table = Table(title=plain("; ".join(silent)) if silent else None, title_justify="left")
    for column in ("metric", "of", "value", "meaning"):
        table.add_column(column, justify="right" if column == "value" else "left", overflow="fold")
    for metric, values in metrics:
        for label, value in values.items():
            table.add_row(*map(plain, [metric.name, label, f"{value:,.6g}", metric.meaning]))
    return table
