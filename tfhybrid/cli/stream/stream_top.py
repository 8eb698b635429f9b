"""`tfhybrid stream top`: metrics of the provider, the sync unit and readers."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tfhybrid.cli.terminal.console import (
    live,
    plain,
    show,
    show_json,
)
from tfhybrid.cli.terminal.options import Interval, Json, Prometheus
from tfhybrid.errors import StreamError

if TYPE_CHECKING:
    from rich.table import Table

    from tfhybrid.monitoring.metrics import Metric
    from tfhybrid.rpc.remote import Remote
    from tfhybrid.stream.stream_settings import StreamSettings

_PATIENCE_SECONDS = 2.0

Config = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Settings of the stream, such as stream.yaml."),
]


_Value = TypeVar("_Value")
Stats = Callable[[], dict[str, dict[str, float]]]


class Processes:
    """Connections to the processes of a stream, for reading their metrics. Not thread-safe.

    Args:
        settings: Settings of the stream.
        readers: Addresses of read-only nodes, `host:port` each.

    Attributes:
        silent: Error texts of the processes that did not answer the last `look`.
    """

    def __init__(self, settings: StreamSettings, readers: list[str]) -> None:
        from tfhybrid.rpc.address import parsed_address
        from tfhybrid.rpc.remote import Remote
        from tfhybrid.rpc.remote_methods import client
        from tfhybrid.serving.read_only_node import ReadOnlyNode
        from tfhybrid.stream.provider.provider import Provider
        from tfhybrid.stream.provider.routes import Routes
        from tfhybrid.stream.sync_unit.sync_unit import SyncUnit

        for address in readers:
            parsed_address(address)  # before the token's file is read
        self._models = Routes(**settings.routes).models

        def remote(address: str, peer: str) -> Remote:
            return Remote(address, settings.token, "top", peer, patience=_PATIENCE_SECONDS)

        self._provider = client(Provider, remote(settings.provider, "provider"))
        nodes = [client(ReadOnlyNode, remote(each, "read-only node")) for each in readers]
        unit = client(SyncUnit, remote(settings.sync, "sync unit"))
        self._stats: list[Stats] = [unit.stats, *(node.stats for node in nodes)]
        self.silent: list[str] = []

    def look(self) -> list[tuple[Metric, dict[str, float]]]:
        """Returns the metrics of all processes of the stream. Skips those that do not answer.

        Returns:
            Pairs of a metric and its values by label.
        """
        from tfhybrid.monitoring.metrics import STREAM_LAG

        self.silent = []
        lag: dict[str, float] = {}
        for model in self._models:
            records: dict[str, int] = self._asked(functools.partial(self._provider.lag, model))
            lag |= {f"{model}/{queue}": float(count) for queue, count in records.items()}
        of_provider = [(STREAM_LAG, lag)] if lag else []
        return [*of_provider, *(each for stats in self._stats for each in self._metrics(stats))]

    def _metrics(self, stats: Stats) -> Iterator[tuple[Metric, dict[str, float]]]:
        from tfhybrid.stream.sync_unit.stats import from_dict

        values: dict[str, dict[str, float]] = self._asked(stats)
        yield from from_dict(values)

    def _asked(self, ask: Callable[[], dict[str, _Value]]) -> dict[str, _Value]:
        try:
            return ask()
        except StreamError as error:
            self.silent.append(str(error))
            return {}


def top(
    config: Config,
    reader: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of a read-only node to watch too; repeatable."
        ),
    ] = None,
    interval: Interval = 2.0,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default="until Ctrl-C", help="Number of readings."),
    ] = None,
    as_json: Json = False,
    prometheus: Prometheus = None,
) -> None:
    """Watch the lag, staleness and publications of a stream.

    Asks the data provider, the sync unit and the read-only nodes, and names those that do not
    answer. Ends at Ctrl-C.

    $ tfhybrid stream top stream.yaml --reader localhost:7200
    """
    from tfhybrid.stream.stream_settings import StreamSettings

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
    from rich.table import Table

    table = Table(title=plain("; ".join(silent)) if silent else None, title_justify="left")
    for column in ("metric", "of", "value", "meaning"):
        table.add_column(column, justify="right" if column == "value" else "left", overflow="fold")
    for metric, values in metrics:
        for label, value in values.items():
            table.add_row(*map(plain, [metric.name, label, f"{value:,.6g}", metric.meaning]))
    return table
