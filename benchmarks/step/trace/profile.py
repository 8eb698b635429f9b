"""What TensorFlow's profiler wrote: copies of host and device, kernels, and ops of the host."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The format of the profiler's files. TensorFlow has no function that reads them.
from tensorflow.tsl.profiler.protobuf import xplane_pb2


@dataclasses.dataclass(frozen=True)
class Copies:
    """Copies of one size and direction.

    Args:
        direction: Such as `MemcpyH2D`, from the host to the device.
        memory: Memory of the host: `pinned` or `pageable`, or what the profiler calls it.
        bytes: Bytes of each copy.
        count: Number of copies.
        microseconds: Time of all together.
    """

    direction: str
    memory: str
    bytes: int
    count: int
    microseconds: float


@dataclasses.dataclass(frozen=True)
class Spans:
    """Runs of one kernel or op.

    Args:
        name: Its name; of an op, its type.
        count: Number of runs.
        microseconds: Time of all together, of an op on all threads.
    """

    name: str
    count: int
    microseconds: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """A profile of some steps; each list begins with what takes most time.

    Args:
        copies: Between host and device.
        kernels: On the device.
        ops: On the host.
        busy_microseconds: Time in which the device copied or computed.
    """

    copies: list[Copies]
    kernels: list[Spans]
    ops: list[Spans]
    busy_microseconds: float


def read_profile(folder: Path) -> Profile:
    """Returns the profile in a folder of `tf.profiler.experimental.Profile`.

    Args:
        folder: Folder of one profile.

    Raises:
        FileNotFoundError: There is no profile.
    """
    files = sorted(folder.glob("**/*.xplane.pb"))
    if not files:
        raise FileNotFoundError(f"No profile in {folder}.")
    space = xplane_pb2.XSpace.FromString(files[0].read_bytes())
    copies: dict[tuple[str, str, int], list[float]] = collections.defaultdict(list)
    kernels: dict[str, list[float]] = collections.defaultdict(list)
    ops: dict[str, list[float]] = collections.defaultdict(list)
    busy: list[tuple[int, int]] = []
    for plane in space.planes:
        of_device = "GPU" in plane.name and plane.name.startswith("/device:")
        for begin, event, metadata, stats in _events(plane):
            name, microseconds = metadata.name, 1e-6 * event.duration_ps
            if of_device:
                busy.append((begin, begin + event.duration_ps))
                details = str(stats.get("memcpy_details", ""))
                if details:
                    copies[name, _memory(details), _number(details, "size")].append(microseconds)
                else:
                    kernels[name].append(microseconds)
            elif metadata.display_name and name.endswith(f":{metadata.display_name}"):
                ops[metadata.display_name].append(microseconds)
    return Profile(
        _by_time(Copies(*key, len(times), sum(times)) for key, times in copies.items()),
        _by_time(Spans(name, len(times), sum(times)) for name, times in kernels.items()),
        _by_time(Spans(name, len(times), sum(times)) for name, times in ops.items()),
        1e-6 * _union(busy),
    )


def _events(plane: xplane_pb2.XPlane) -> Iterator[tuple[int, Any, Any, dict[str, Any]]]:
    """Yields when each event began, in picoseconds, the event, its metadata and its statistics."""
    for line in plane.lines:
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            stats = {}
            for stat in [*metadata.stats, *event.stats]:
                value = getattr(stat, stat.WhichOneof("value") or "int64_value")
                if stat.WhichOneof("value") == "ref_value":
                    value = plane.stat_metadata[value].name
                stats[plane.stat_metadata[stat.metadata_id].name] = value
            yield 1000 * line.timestamp_ns + event.offset_ps, event, metadata, stats


def _memory(details: str) -> str:
    kinds = re.findall(r"kind_(?:src|dst):(\w+)", details)
    return next((kind for kind in kinds if kind != "device"), "device")


def _number(details: str, name: str) -> int:
    found = re.search(rf"\b{name}:(\d+)", details)
    return int(found[1]) if found else 0


def _by_time(spans: Iterator) -> list:
    return sorted(spans, key=lambda span: -span.microseconds)


def _union(spans: list[tuple[int, int]]) -> int:
    """Returns the length of what the spans cover together."""
    covered, end = 0, 0
    for begin, its_end in sorted(spans):
        covered += max(0, its_end - max(begin, end))
        end = max(end, its_end)
    return covered
