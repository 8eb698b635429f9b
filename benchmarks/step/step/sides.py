"""The sides of the step benchmark, and how they take turns: A B C D A B C D ...

Each runs in a fresh horovodrun, so that a drift of the machine meets all of them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.step.step")

Runs = dict[str, list[dict[str, object]]]
Summary = dict[str, dict[str, object]]


@dataclasses.dataclass(frozen=True)
class Side:
    """A module to run, its own options, and the peer in whose environment it lives."""

    module: str
    options: tuple[str, ...] = ()
    peer: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a side: all keep freed memory."""
        return {} if self.module == "benchmarks.step.step.tfhybrid_step" else KEEPS_MEMORY

    def python(self) -> Path:
        """Returns the interpreter whose environment has the side.

        Raises:
            SideFailedError: There is none.
        """
        return launch.peer_python(self.peer) if self.peer else Path(sys.executable)


# glibc then keeps freed memory, as tfhybrid has it do in its own processes.
KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
}

SIDES = {
    "bound": Side("benchmarks.step.step.bound"),
    "bound-torch": Side("benchmarks.step.step.torch_bound", peer="torchrec"),
    "plain": Side("benchmarks.step.step.plain_horovod"),
    "plain-keras3": Side("benchmarks.step.step.plain_horovod", ("--adagrad", "keras3")),
    "plain-one": Side("benchmarks.step.step.plain_horovod", ("--layout", "one")),
    "tfra": Side("benchmarks.step.step.tfra", peer="tfra"),
    "tfra-each": Side("benchmarks.step.step.tfra", ("--layout", "each"), peer="tfra"),
    "torchrec": Side("benchmarks.step.step.torchrec_step", peer="torchrec"),
    "torchrec-rows": Side(
        "benchmarks.step.step.torchrec_step", ("--sharding", "rows"), peer="torchrec"
    ),
    "tfhybrid": Side("benchmarks.step.step.tfhybrid_step"),
    "tfhybrid-horovod": Side("benchmarks.step.step.tfhybrid_step", ("--dense", "horovod")),
    "tfhybrid-bfloat16": Side("benchmarks.step.step.tfhybrid_step", ("--wire-dtype", "bfloat16")),
    "tfhybrid-sharded": Side("benchmarks.step.step.tfhybrid_step", ("--sharded",)),
    "tfhybrid-dataset": Side("benchmarks.step.step.tfhybrid_step", ("--dataset",)),
    "tfhybrid-ahead": Side(
        "benchmarks.step.step.tfhybrid_step", ("--dataset", "--pass-batches", "2")
    ),
    "tfhybrid-device": Side(
        "benchmarks.step.step.tfhybrid_step",
        ("--dataset", "--pass-batches", "2", "--gather-on", "device"),
    ),
    "tfhybrid-pass": Side(
        "benchmarks.step.step.tfhybrid_step", ("--sharded", "--pass-batches", "2")
    ),
}


def has_tables(name: str) -> bool:
    """Returns whether a side has tables: the work of the others does not depend on ids."""
    return not name.startswith("bound")


def is_peer(name: str) -> bool:
    """Returns whether a side is one to beat: neither the bound nor a variant of tfhybrid."""
    return has_tables(name) and not name.startswith("tfhybrid")


def run_rounds(names: list[str], rounds: int, run: Callable[[str], dict[str, object]]) -> Runs:
    """Runs every side `rounds` times, interleaved; a side that fails drops out with a warning.

    Args:
        names: sides, in the order of their turns.
        rounds: turns of each.
        run: runs the side of this name, and returns its result.
    """
    results: Runs = {name: [] for name in names}
    left = list(names)
    for number in range(1, rounds + 1):
        for name in [*left]:
            load = os.getloadavg()[0]
            try:
                result = run(name)
            except launch.SideFailedError as error:
                LOGGER.warning("%s left out: %s", name, error)
                left.remove(name)
                continue
            rate = result["samples_per_second"]
            LOGGER.info(
                "round %d %-12s %9.0f samples/s (load before %.1f)", number, name, rate, load
            )
            results[name].append(result | {"load_before": round(load, 2)})
    return {name: runs for name, runs in results.items() if runs}


def median(field: str, runs: list[dict[str, object]]) -> float:
    """Returns the median of a field over a side's runs."""
    return statistics.median(run[field] for run in runs)


def summarize(results: Runs) -> Summary:
    """Returns each side's median over the rounds, and its ratios to bound and better peer."""
    rates = {name: median("samples_per_second", runs) for name, runs in results.items()}
    peers = [rate for name, rate in rates.items() if is_peer(name)]
    return {
        name: {
            "samples_per_second": round(rate),
            "milliseconds_per_step": round(median("milliseconds_per_step", results[name]), 2),
            "processor_milliseconds_per_step": round(
                median("processor_milliseconds_per_step", results[name]), 2
            ),
            "to_bound": round(rate / rates["bound"], 3) if "bound" in rates else None,
            "to_better_peer": round(rate / max(peers), 3) if peers else None,
        }
        for name, rate in rates.items()
    }


def ratio(value: object) -> str:
    """Returns a ratio of a summary for its table."""
    return "-" if value is None else f"{value:.2f}"
