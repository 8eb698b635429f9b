"""`tfhybrid stream top`: metrics of the provider, the sync unit and readers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tfhybrid.cli.terminal.console import drawn_table
from tfhybrid.cli.terminal.options import Count, Interval, Json, Prometheus
from tfhybrid.cli.terminal.watching import Numbers, TopLoop
from tfhybrid.errors import StreamError

if TYPE_CHECKING:
    from rich.table import Table

    from tfhybrid.monitoring.metrics import Metric, Reading
    from tfhybrid.rpc.remote import Remote
    from tfhybrid.stream.stream_settings import StreamSettings

_PATIENCE_SECONDS = 2.0

Config = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Settings of the stream, such as stream.yaml."),
]
Stats = Callable[[], Mapping[str, Mapping[str, float]]]


class Processes:
    """Connections to the processes of a stream, for reading their metrics. Thread-safe.

    Args:
        settings: Settings of the stream.
        readers: Addresses of read-only nodes, `host:port` each.

    Raises:
        ConfigError: An address is not `host:port`, a route is not valid, or the token file cannot
            be read.
    """

    def __init__(self, settings: StreamSettings, readers: list[str]) -> None:
        from tfhybrid.rpc.address import parsed_address
        from tfhybrid.rpc.remote import Remote
        from tfhybrid.rpc.remote_methods import client
        from tfhybrid.serving.read_only_node import ReadOnlyNode
        from tfhybrid.stream.provider.provider import Provider
        from tfhybrid.stream.sync_unit.sync_unit import SyncUnit

        for address in readers:
            parsed_address(address)  # before the token's file is read
        self._models = settings.queue_routes.models

        def remote(address: str, peer: str) -> Remote:
            patience = {"patience": _PATIENCE_SECONDS, "limit": _PATIENCE_SECONDS}
            return Remote(address, settings.token, "top", peer, **patience)

        self._provider = client(Provider, remote(settings.provider, "provider"))
        nodes = [client(ReadOnlyNode, remote(each, "read-only node")) for each in readers]
        unit = client(SyncUnit, remote(settings.sync, "sync unit"))
        self._stats: list[Stats] = [self._of_provider, unit.stats, *(node.stats for node in nodes)]

    def answers(self) -> StreamAnswers:
        """Returns the metrics of all processes of the stream that answer within their patience.

        Asks all of them at the same time, so that several that are stopped cost no more than one.
        """
        from tfhybrid.monitoring.metrics import from_dict

        with ThreadPoolExecutor(len(self._stats)) as threads:
            answers = list(threads.map(_asked, self._stats))
        silent = [each for each in answers if isinstance(each, str)]
        stats = [each for each in answers if not isinstance(each, str)]
        return StreamAnswers([metric for each in stats for metric in from_dict(each)], silent)

    def _of_provider(self) -> Mapping[str, Mapping[str, float]]:
        from tfhybrid.monitoring.metrics import STREAM_LAG

        lags = {
            f"{model}/{queue}": float(count)
            for model in self._models
            for queue, count in self._provider.lag(model).items()
        }
        return {**({STREAM_LAG.name: lags} if lags else {}), **self._provider.stats()}


def _asked(stats: Stats) -> Mapping[str, Mapping[str, float]] | str:
    """Returns the metrics of a process, or why it has not answered."""
    try:
        return stats()
    except StreamError as error:
        return str(error)


class StreamAnswers(NamedTuple):
    """Metrics of a stream at one time.

    Args:
        metrics: Metrics, each with its values by model, queue or reader.
        silent: Error texts of the processes that did not answer.
    """

    metrics: list[tuple[Metric, dict[str, float]]]
    silent: list[str]


class StreamLook:
    """A look at a stream, whose processes are asked once, when their metrics are first used.

    Args:
        processes: Processes of the stream.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    @functools.cached_property
    def _answers(self) -> StreamAnswers:
        return self._processes.answers()

    def reading(self) -> Reading:
        """Returns the metrics."""
        return self._answers.metrics

    def ended(self) -> bool:
        """Returns false: a process that does not answer may come back."""
        return False

    def fields(self, rates: Numbers) -> dict[str, Any]:
        """Returns the values by the name of the metric and the label."""
        return {metric.name: values for metric, values in self._answers.metrics}

    def drawn(self, rates: Numbers) -> Table:
        """Returns a table with a row for each metric of a model, queue or reader."""
        rows = [
            [metric.name, label, f"{value:,.6g}", metric.meaning]
            for metric, values in self._answers.metrics
            for label, value in values.items()
        ]
        text = ("metric", "of", "meaning")
        columns = ("metric", "of", "value", "meaning")
        return drawn_table(columns, rows, text=text, title="; ".join(self._answers.silent))


def top(
    config: Config,
    reader: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of a read-only node to watch too; repeatable."
        ),
    ] = None,
    interval: Interval = 2.0,
    count: Count = None,
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
    loop = TopLoop("stream", lambda: StreamLook(processes), interval, count)
    if prometheus is None:
        loop.show(as_json, has_rates=False)
    else:
        loop.serve(prometheus)
