"""Threads that publish models when publications are due."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from tfhybrid.errors import PublicationError
from tfhybrid.stream.sync_unit.publisher import Publisher, WithheldError

_log = logging.getLogger("tfhybrid.stream")

_MAX_CHECK_SECONDS = 1.0  # between two checks whether a publication is due


class PublisherClock:
    """Threads that publish models when they are due, one per model, so that none waits for another.

    The threads start at once, and `close` ends them. A `PublicationError` is logged: the next
    publication has the changes.

    Args:
        publishers: Publishers by the name of the model.
    """

    def __init__(self, publishers: Mapping[str, Publisher]) -> None:
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run, args=(each,), name=f"tfhybrid-publisher-{name}", daemon=True
            )
            for name, each in publishers.items()
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Publishes the last changes of each model, ends the threads, and waits for their end.

        An error in publishing is logged, not raised.
        """
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _run(self, publisher: Publisher) -> None:
        pause = min(_MAX_CHECK_SECONDS, publisher.rules.seconds / 4)
        began = time.monotonic()
        while not self._ends.wait(pause):
            if publisher.due(time.monotonic() - began):
                began = time.monotonic()
                _publish(publisher)
        _publish(publisher)


def _publish(publisher: Publisher) -> None:
    try:
        publisher.publish()
    except WithheldError:
        pass  # the publisher has logged it
    except PublicationError as error:
        _log.error("%s. The next publication will have the changes", error)
