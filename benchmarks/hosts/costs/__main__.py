"""Constants of the cost model of `tfhybrid plan`, fitted to measured steps and checked on others.

    python -m benchmarks.hosts.costs [--hosts 1 2 3 4]

Each cell is a job of tables without a model. Every third cell is held back: the constants do not
see it, and the page says by how much they miss it. Needs root for several hosts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from benchmarks.hosts.hosts.run import run_on_hosts
from benchmarks.support import launch
from tfhybrid.planner.step_costs import (
    Costs,
    PlannedStep,
    amounts,
    seconds_of,
)
from tfhybrid.planner.step_seconds import MeasuredWork, measure

LOGGER = logging.getLogger("benchmarks.hosts.costs")
SHIPPED = launch.ROOT / "tfhybrid" / "planner" / "step_costs.json"
GBIT = 1.0
NANOSECONDS = {"line", "merged_key", "applied_line", "byte", "far_row"}
STATE = {"sgd": 0, "adagrad": 1, "adam": 2}  # vectors of `dim` floats


@dataclasses.dataclass(frozen=True)
class Cell:
    """A job that is measured."""

    hosts: int
    ranks: int
    rows: int = 4_000_000
    dim: int = 16
    optimizer: str = "adagrad"
    keys: int = 106_496
    exponent: float = 1.2
    tables: int = 1

    def work(self) -> MeasuredWork:
        """Returns what a rank of it does."""
        shape = self.tables, self.rows, self.dim, self.optimizer, self.keys // self.tables
        return MeasuredWork(*shape, self.exponent, bfloat16=False, history=False)

    def planned(self) -> PlannedStep:
        """Returns what the model is asked; the hosts of this machine share its cores."""
        return PlannedStep(
            *(self.tables, self.rows, self.dim, STATE[self.optimizer] * self.dim),
            *(self.keys // self.tables, self.exponent, self.hosts, self.ranks),
            cores=len(os.sched_getaffinity(0)) / self.hosts,
            link=GBIT,
        )


def cells(hosts: list[int]) -> list[Cell]:
    """Returns the jobs: each varies one thing."""
    one = [
        *(Cell(1, ranks, exponent=exponent) for ranks in (1, 2, 4) for exponent in (0.0, 1.2)),
        *(Cell(1, 2, rows=rows, exponent=0.0) for rows in (1_000_000, 10_000_000)),
        *(Cell(1, 2, dim=dim) for dim in (8, 64)),
        *(Cell(1, 2, dim=64, exponent=exponent, keys=26_624) for exponent in (0.0, 1.2)),
        *(Cell(1, 2, keys=keys, exponent=0.0) for keys in (1_024, 13_312)),
        *(Cell(1, 2, optimizer=name, exponent=0.0) for name in ("sgd", "adam")),
        Cell(1, 2, tables=26),
        Cell(1, 8),
        Cell(1, 4, exponent=0.0, keys=26_624),
        *(Cell(1, 2, rows=rows, exponent=0.0) for rows in (30_000_000, 100_000_000)),
    ]
    several = [
        Cell(number, 1, exponent=exponent, keys=53_248)
        for number in hosts
        if number > 1
        for exponent in (0.0, 1.2)
    ]
    return one + several


def measured(cell: Cell) -> float:
    """Returns the seconds of a cell's step."""
    if cell.hosts == 1:
        return measure(cell.work(), cell.ranks)
    work = json.dumps(dataclasses.asdict(cell.work()))
    command = ["-m", "tfhybrid.planner.step_seconds", work]
    output = run_on_hosts(command, cell.hosts, cell.ranks, f"{GBIT:g}gbit")
    told = next(line for line in output.splitlines() if '"step_seconds"' in line)
    return float(json.loads(told[told.index("{") :])["step_seconds"])


def last_result() -> tuple[list[Cell], list[float]]:
    """Returns the cells of the last run, and the seconds of each."""
    told = json.loads((launch.RESULTS / "costs.json").read_text())["cells"]
    names = [field.name for field in dataclasses.fields(Cell)]
    return [Cell(**{name: cell[name] for name in names}) for cell in told], [
        cell["seconds"] for cell in told
    ]


def fit(steps: list[PlannedStep], seconds: list[float]) -> Costs:
    """Returns the constants, none below zero, that miss by the least share of each step."""
    matrix, rest = [], []
    for step, took in zip(steps, seconds, strict=True):
        free = Costs(**dict.fromkeys((field.name for field in dataclasses.fields(Costs)), 0.0))
        rest.append((took - seconds_of(step, free).link) / took)
        matrix.append(
            [
                amount * (1e-9 / step.cores if name in NANOSECONDS else 1.0) / took
                for name, amount in amounts(step).items()
            ]
        )
    found, _ = nnls(np.asarray(matrix), np.asarray(rest))
    return Costs(*map(float, found))


def main() -> None:
    """Measures, fits, shows what was held back, and writes the constants."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts.costs", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--only", type=int, help="measure the first so many cells")
    parser.add_argument("--fit", action="store_true", help="fit to the last result's cells again")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if arguments.fit:
        jobs, seconds = last_result()
    else:
        jobs, seconds = cells(arguments.hosts)[: arguments.only], []
    for cell in jobs[len(seconds) :]:
        seconds.append(measured(cell))
        LOGGER.info("%s: %.2f ms", cell, 1e3 * seconds[-1])
    steps = [cell.planned() for cell in jobs]
    known = [number for number in range(len(jobs)) if number % 3 != 2]
    costs = fit([steps[number] for number in known], [seconds[number] for number in known])
    rows = []
    table = Table(title="held back cells are marked")
    for heading in ("cell", "measured, ms", "by the model, ms", "misses by"):
        table.add_column(heading)
    for number, (cell, step, took) in enumerate(zip(jobs, steps, seconds, strict=True)):
        model = seconds_of(step, costs).total
        held_back = number not in known
        rows.append(
            {
                **dataclasses.asdict(cell),
                **{"seconds": took, "model_seconds": model, "held_back": held_back},
            }
        )
        mark = "held back: " if held_back else ""
        said = ", ".join(f"{key} {value}" for key, value in dataclasses.asdict(cell).items())
        miss = f"{model / took - 1:+.0%}"
        table.add_row(mark + said, f"{1e3 * took:.2f}", f"{1e3 * model:.2f}", miss)
    Console().print(table, costs)
    found = {"machine": launch.machine(), "costs": costs.terms()}
    launch.write_result("costs", {**found, "cells": rows})
    SHIPPED.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
