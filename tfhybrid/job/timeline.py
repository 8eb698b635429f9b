"""Timeline of a rank: the phase of a step in which each thread was at each time.

With `TFHYBRID_TIMELINE=DIRECTORY`, every rank writes `timeline-RANK.json` there when the job ends.
`chrome://tracing` and https://ui.perfetto.dev show it, like Horovod's own timeline. The spans of
different hosts can be compared if the clocks of the hosts agree.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from tfhybrid.core import native
from tfhybrid.errors import ConfigError
from tfhybrid.settings import timeline_directory

MAX_SPANS = 1_000_000  # per rank, 24 bytes each

_log = logging.getLogger(__name__)


def start() -> None:
    """Starts recording if `TFHYBRID_TIMELINE` is set.

    Raises:
        ConfigError: The variable does not name an existing, writable directory.
    """
    directory = timeline_directory()
    if not directory:
        return
    if not os.access(directory, os.W_OK | os.X_OK) or not Path(directory).is_dir():
        raise ConfigError(
            "TFHYBRID_TIMELINE must name an existing directory that can be written to. "
            f"Received: {directory!r}"
        )
    native.start_timeline(MAX_SPANS)


def write(rank: int, here: str) -> None:
    """Writes the recorded spans to `timeline-RANK.json` if `TFHYBRID_TIMELINE` is set.

    A file that cannot be written is logged and raises no error.

    Args:
        rank: Rank of this process.
        here: Name of this process in the timeline.
    """
    directory = timeline_directory()
    if not directory:
        return
    spans = native.timeline(MAX_SPANS)
    events: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": here}}
    ]
    for span in spans:
        microseconds = {
            "ts": int(span["begin"]) / 1e3,
            "dur": int(span["end"] - span["begin"]) / 1e3,
        }
        where = {"pid": rank, "tid": int(span["thread"])}
        events.append({"name": native.PHASES[span["phase"]], "ph": "X", **microseconds, **where})
    path = Path(directory) / f"timeline-{rank}.json"
    try:
        path.write_text(json.dumps({"traceEvents": events}))
    except OSError as error:
        _log.warning("The timeline of %s cannot be written: %s", here, error)
        return
    if len(spans) == MAX_SPANS:
        _log.warning("%s has only the first %d spans, the maximum.", path, MAX_SPANS)
