"""Assignment of the processors of a machine to its processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tfhybrid.cluster.placed_processes import PlacedProcess
from tfhybrid.errors import ConfigError


def processors_of(processes: Sequence[PlacedProcess]) -> dict[str, set[int]]:
    """Returns the processors of each process, by its name.

    A process that limits its processors gets the next ones in turn; an empty set means all.

    Args:
        processes: All processes of this machine, in order.

    Raises:
        ConfigError: A process needs more processors than there are, or a NUMA node that does not
            exist.
    """
    processors: dict[str, set[int]] = {}
    taken = 0
    for each in processes:
        processors[each.name] = processors_of_process(each, taken)
        taken += each.cpus
    return processors


def processors_of_process(process: PlacedProcess, taken: int) -> set[int]:
    """Returns the processors of one process; an empty set means all.

    Args:
        process: Process on this machine.
        taken: Number of processors of the processes before it. They start again at the first
            processor if there are too few.

    Raises:
        ConfigError: The process needs more processors than there are, or a NUMA node that does not
            exist.
    """
    mine = sorted(os.sched_getaffinity(0))
    if process.numa is not None:
        mine = _of_numa_node(process.numa, mine)
    if process.cpus == 0:
        return set(mine) if process.numa is not None else set()
    if process.cpus > len(mine):
        raise ConfigError(
            f"{process.name} needs {process.cpus} processors, more than there are: lower `cpus`. "
            f"Received: {len(mine)}"
        )
    return {mine[(taken + i) % len(mine)] for i in range(process.cpus)}


def _of_numa_node(number: int, allowed: Sequence[int]) -> list[int]:
    path = Path(f"/sys/devices/system/node/node{number}/cpulist")
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"There is no NUMA node {number}: {error}") from error
    numbers: set[int] = set()
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return [each for each in allowed if each in numbers]
