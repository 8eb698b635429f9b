"""When each thread of a rank was in which phase of its steps, as a picture.

With `TFHYBRID_TIMELINE=DIRECTORY`, every rank writes `timeline-RANK.json` there when the job ends.
`chrome://tracing` and https://ui.perfetto.dev draw it, as they draw Horovod's own timeline. The
spans of all ranks lie on one clock if those of their hosts agree.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from tfhybrid.core import native
from tfhybrid.errors import ConfigError

DIRECTORY = "TFHYBRID_TIMELINE"
MOST_SPANS = 1_000_000  # of a rank: 24 bytes each

_log = logging.getLogger(__name__)


def start() -> None:
    """Begins to record, if the environment asks for it.

    Raises:
        ConfigError: There is no such directory, or it cannot be written to.
    """
    directory = os.environ.get(DIRECTORY)
    if not directory:
        return
    if not os.access(directory, os.W_OK | os.X_OK) or not Path(directory).is_dir():
        raise ConfigError(
            f"{DIRECTORY} must name a directory that can be written to. Received: {directory!r}"
        )
    native.start_timeline(MOST_SPANS)


def write(rank: int, here: str) -> None:
    """Writes what was recorded, if anything was asked for.

    Args:
        rank: Of this process.
        here: What the picture calls it.
    """
    directory = os.environ.get(DIRECTORY)
    if not directory:
        return
    spans = native.timeline(MOST_SPANS)
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
    if len(spans) == MOST_SPANS:
        _log.warning("%s holds the first %d spans; later ones were left out.", path, MOST_SPANS)
