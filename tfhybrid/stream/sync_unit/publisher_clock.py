"""Publications by the clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from tfhybrid.errors import PublicationError
from tfhybrid.stream.sync_unit.publisher import Publisher, WithheldError

_log = logging.getLogger("tfhybrid.stream")

_LONGEST_LOOK = 1.0  # seconds between two looks at how many rows have come


class PublisherClock:
    """Publishes each model when it is due. Each has a thread of its own: none waits for another.

    Args:
        publishers: By name of the model.
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
        """Ends the threads, once they have published what has changed."""
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _run(self, publisher: Publisher) -> None:
        look = min(_LONGEST_LOOK, publisher.rules.seconds / 4)
        began = time.monotonic()
        while not self._ends.wait(look):
            if publisher.due(time.monotonic() - began):
                began = time.monotonic()
                _publish(publisher)
        _publish(publisher)


def _publish(publisher: Publisher) -> None:
    try:
        publisher.publish()
    except WithheldError:
        pass  # the publisher has said so
    except PublicationError as error:
        _log.error("%s. The next publication has what has changed", error)
