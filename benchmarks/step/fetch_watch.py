"""How long rows of passes are on their way, and how long a rank waits for rows, by the clock."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import tfhybrid
from tfhybrid.core import native

_SECONDS_BETWEEN_LOOKS = 0.002


class FetchWatch:
    """A context in which a thread of the leader looks whether rows of passes are on their way.

    They are while owners were asked for more rows than have come. A rank waits while one of its
    lookups brings rows, or waits for those of its pass. What is on its way and not waited for lies
    under the rank's computing.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> FetchWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def count(self) -> dict[str, float]:
        """Returns milliseconds and bytes since the job began."""
        passes, counters = tfhybrid.pass_stats(), native.counters()
        return {
            "pass_on_its_way_milliseconds": 1e3 * self._seconds,
            "fetch_wait_milliseconds": 1e3 * native.phase_times()["fetch"],
            "pass_bytes": passes.bytes,
            "pass_asked_rows": passes.asked,
            "pass_refreshed_rows": passes.refreshed,
            "fetched_bytes": counters["fetched_bytes"],
            "update_bytes": counters["sent_bytes"],
        }

    def _watch(self) -> None:
        last = time.perf_counter()
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            passes, now = tfhybrid.pass_stats(), time.perf_counter()
            if passes.asked > passes.fetched:
                self._seconds += now - last
            last = now
