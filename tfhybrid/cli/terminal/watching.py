"""The loop of `top`: looks at processes, and shows or serves their metrics."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tfhybrid.cli.terminal.console import live, plain, show, show_json
from tfhybrid.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tfhybrid.monitoring.metrics import Reading

Numbers = Mapping[tuple[str, Any], float]  # by the name of the metric and its label


class Look(Protocol):
    """Metrics of some processes at one time."""

    def reading(self) -> Reading:
        """Returns the metrics."""

    def ended(self) -> bool:
        """Returns whether there will be no further look, because the processes have ended."""

    def fields(self, rates: Numbers) -> dict[str, Any]:
        """Returns a JSON-serializable object; `rates` are the growth of counters per second."""

    def drawn(self, rates: Numbers) -> RenderableType:
        """Returns tables for a terminal; `rates` are the growth of counters per second."""


@dataclasses.dataclass(frozen=True)
class TopLoop:
    """Looks at processes of one kind, one after the other.

    Args:
        name: Name of the processes, for messages and for the endpoint.
        look: Function that returns their metrics now.
        interval: Time between two looks, in seconds.
        count: Number of looks; `None` for no end.
    """

    name: str
    look: Callable[[], Look]
    interval: float
    count: int | None

    def show(self, as_json: bool, has_rates: bool) -> None:
        """Shows the metrics until the processes end, or for `count` looks.

        Args:
            as_json: Whether to print JSON instead of tables.
            has_rates: Whether the first output needs rates, and so an interval before it.

        Raises:
            TfhybridError: The processes cannot be read.
        """
        from tfhybrid.monitoring.metrics import counters, rates

        counted, at = counters(self.look().reading()) if has_rates else {}, time.monotonic()
        with live() as screen:
            for number in self._numbers():
                if number or has_rates:
                    time.sleep(self.interval)
                look, before, then = self.look(), counted, at
                counted, at = counters(look.reading()), time.monotonic()
                growth = rates(before, counted, at - then)
                if as_json:
                    show_json(look.fields(growth))
                else:
                    screen(look.drawn(growth))
                if look.ended():
                    return

    def serve(self, listen: str) -> None:
        """Serves Prometheus until the processes end, or for `count` intervals.

        Args:
            listen: `PORT`, to serve this host alone, or `HOST:PORT`.

        Raises:
            ConfigError: The address has another form, or is not available.
            TfhybridError: The processes cannot be read.
        """
        from tfhybrid.monitoring.prometheus import Endpoint

        host, port = listening_address(listen)
        lock = threading.Lock()  # `look` may not be thread-safe

        def look() -> Look:
            with lock:
                return self.look()

        look().reading()  # fails now rather than at the first request
        endpoint = Endpoint(self.name, lambda: look().reading(), port, host)
        show(plain(f"Metrics of {self.name}: http://{host}:{endpoint.port}/metrics"))
        try:
            for _ in self._numbers():
                time.sleep(self.interval)
                if look().ended():
                    return
        finally:
            endpoint.close()

    def _numbers(self) -> Any:
        return itertools.count() if self.count is None else range(self.count)


def listening_address(text: str) -> tuple[str, int]:
    """Returns host and port on which to serve Prometheus.

    Args:
        text: `PORT`, for this host alone, 0 for a free one; or `HOST:PORT`.

    Raises:
        ConfigError: The text has another form, or the port is out of range.
    """
    from tfhybrid.monitoring.prometheus import LOOPBACK
    from tfhybrid.rpc.address import parsed_address

    if text == "0":
        return LOOPBACK, 0
    try:
        return parsed_address(text if ":" in text else f"{LOOPBACK}:{text}")
    except ConfigError as error:
        raise ConfigError(
            f"Prometheus is served at PORT, from 0 to 65535, or HOST:PORT. Received: {text!r}"
        ) from error
