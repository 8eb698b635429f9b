"""How every side of the step benchmark is timed, with the clock and the kernel's counters alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from benchmarks.step.step.workload import StepConfig


def time_windows(
    config: StepConfig, steps: Iterable[Callable[[], object]], wait: Callable[[], object]
) -> np.ndarray:
    """Runs the steps of `config.windows` windows, after one that warms caches and threads.

    Args:
        config: the workload.
        steps: at least `(windows + 1) * steps` calls, each of which trains once.
        wait: waits until the last step is done.

    Returns:
        What `read_meters` counted in each window, `[windows, 4]`.
    """
    left = iter(steps)
    readings = []
    for _ in range(config.windows + 1):
        for _ in range(config.steps):
            next(left)()
        wait()
        readings.append(read_meters())
    return np.diff(readings, axis=0)


def read_meters() -> tuple[float, float, int, int]:
    """Returns seconds, processor seconds of this rank, and bytes this host sent and received."""
    return time.perf_counter(), time.process_time(), *traffic()


def traffic() -> tuple[int, int]:
    """Returns the bytes that left this host, and came to it, over its ranks' network interface.

    Segments that the interface cuts itself count without their headers, up to 5 % less than on a
    wire.
    """
    interface = os.environ.get("HOROVOD_GLOO_IFACE", "lo")
    # Of this process's network namespace, unlike /sys, which shows the one it was mounted in.
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            received, *_ = fields = [int(field) for field in counters.split()]
            return fields[8], received
    raise LookupError(f"No network interface {interface!r}.")


def print_result(
    side: str,
    config: StepConfig,
    windows: np.ndarray,
    gather: Callable[[float], list[float]],
    rank: int,
    **about: object,
) -> None:
    """Prints rank 0's windows, the processor time of all ranks and the traffic as one JSON line.

    Args:
        side: name of the side in the result.
        config: the workload.
        windows: of `time_windows`.
        gather: returns the values of all ranks.
        rank: of this process.
        **about: what else the result says.
    """
    seconds, processor_seconds, sent, received = windows.T
    processors = gather(float(np.median(processor_seconds)))
    sent = max(gather(float(np.mean(sent))))
    received = max(gather(float(np.mean(received))))
    per_step = seconds / config.steps
    median = float(np.median(per_step))
    if rank != 0:
        return
    result = {
        "side": side,
        **about,
        "samples_per_second": config.batch * len(processors) / median,
        "milliseconds_per_step": 1e3 * median,
        "processor_milliseconds_per_step": 1e3 * sum(processors) / config.steps,
        "windows_milliseconds": [round(1e3 * value, 2) for value in per_step],
        # Of the hosts that send and receive most.
        "sent_bytes_per_step": round(sent / config.steps),
        "received_bytes_per_step": round(received / config.steps),
    }
    print(json.dumps(result), flush=True)
