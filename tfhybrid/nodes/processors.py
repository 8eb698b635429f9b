"""The processors of the processes on one machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tfhybrid.errors import ConfigError
from tfhybrid.nodes.placed_processes import PlacedProcess


def processors_of(processes: Sequence[PlacedProcess]) -> dict[str, set[int]]:
    """Returns the processors of each process: runs of them where it wants some, in turn.

    Args:
        processes: All of this machine, in order.

    Raises:
        ConfigError: One wants more than there are, or a NUMA node that is not there.
    """
    shares: dict[str, set[int]] = {}
    taken = 0
    for each in processes:
        shares[each.name] = share_of(each, taken)
        taken += each.cpus
    return shares


def share_of(process: PlacedProcess, taken: int) -> set[int]:
    """Returns the processors of one process, behind those before it; none for all.

    Args:
        process: Of this machine.
        taken: How many processors those before it want.

    Raises:
        ConfigError: As of `processors_of`.
    """
    mine = sorted(os.sched_getaffinity(0))
    if process.numa is not None:
        mine = _of_numa_node(process.numa, mine)
    if process.cpus == 0:
        return set(mine) if process.numa is not None else set()
    if process.cpus > len(mine):
        raise ConfigError(f"{process.name} wants {process.cpus} processors. Received: {len(mine)}")
    return {mine[(taken + i) % len(mine)] for i in range(process.cpus)}


def _of_numa_node(number: int, allowed: Sequence[int]) -> list[int]:
    path = Path(f"/sys/devices/system/node/node{number}/cpulist")
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"There is no NUMA node {number}: {error}") from error
    found: set[int] = set()
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return [each for each in allowed if each in found]
