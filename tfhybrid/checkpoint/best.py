"""Record of a directory's best checkpoint: a small file beside the checkpoints.

The best checkpoint is kept regardless of `max_to_keep`. This module needs neither TensorFlow nor
Horovod.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.untrusted_json import are_numbers, is_count, parse_object, want
from tfhybrid.core.checked_object import encoded, without_checksum
from tfhybrid.errors import CheckpointError, CorruptFileError

RECORD = "best.json"
"""Name of the file of the record."""


@dataclasses.dataclass(frozen=True)
class Best:
    """Step of the best checkpoint, and the metric by which it was chosen.

    Args:
        step: Step of the checkpoint.
        monitor: Name of the metric in the logs of `fit`.
        value: Value of the metric.
    """

    step: int
    monitor: str
    value: float


def read(directory: Location) -> Best | None:
    """Reads a directory's record of its best checkpoint.

    Args:
        directory: Directory of the checkpoints.

    Returns:
        The record, or `None` if there is none.

    Raises:
        CheckpointError: The record is damaged.
        OSError: The record exists and cannot be read.
    """
    path = directory / RECORD
    try:
        content = storage.read(path).tobytes()
    except FileNotFoundError:
        return None
    try:
        return _parsed(without_checksum(parse_object(content), path))
    except (ValueError, CorruptFileError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def write(directory: Location, best: Best) -> None:
    """Records the best checkpoint; replaces the previous record atomically.

    Args:
        directory: Directory of the checkpoints.
        best: Step and metric to record.

    Raises:
        OSError: The record cannot be written.
    """
    storage.write_whole(directory / RECORD, encoded(dataclasses.asdict(best)))


def _parsed(fields: dict[str, Any]) -> Best:
    want(fields.keys() == {"step", "monitor", "value"}, "step, monitor and value", [*fields])
    step, monitor, value = fields["step"], fields["monitor"], fields["value"]
    want(is_count(step, 2**63), "a step", step)
    want(isinstance(monitor, str), "the name of a metric", monitor)
    want(are_numbers([value]), "a finite number", value)
    return Best(step, monitor, float(value))
