"""The cost model of a step: what it counts, and that its constants are found again."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest
from typer.testing import CliRunner

from benchmarks.hosts.costs import __main__ as costs
from tfhybrid.cli.main import app
from tfhybrid.planner.step_costs import (
    Costs,
    PlannedStep,
    amounts,
    seconds_of,
)

STEP = PlannedStep(2, 1_000_000, 16, 16, 4096, 1.2, hosts=2, ranks=2, cores=4, link=10)
COSTS = Costs(10.0, 30.0, 15.0, 2.0, far_row=5.0, step=5e-3)


def planned(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["plan", "--rows", "10M", *arguments, "--json"])
    return json.loads(result.stdout)["of_a_step"]


def test_what_a_step_incurs_is_that_of_its_traffic() -> None:
    traffic = STEP.traffic()
    found = amounts(STEP)
    assert found["line"] == 2 * 2 * 4096
    assert found["applied_line"] == pytest.approx(2 * 2 * 3 * traffic.all_keys)
    assert found["byte"] == 2 * traffic.host_bytes
    sharded = amounts(dataclasses.replace(STEP, sharded=True))
    assert sharded["applied_line"] == pytest.approx(found["applied_line"] / 2)


def test_seconds_are_amounts_times_constants_and_bytes_on_the_link() -> None:
    takes = seconds_of(STEP, COSTS)
    found = amounts(STEP)
    of_cores = sum(found[name] * COSTS.terms()[name] for name in costs.NANOSECONDS) * 1e-9 / 4
    assert takes.tables == pytest.approx(of_cores + 5e-3)
    assert takes.link == pytest.approx(2 * STEP.traffic().host_bytes * 8 / 1e10)
    assert takes.total == takes.tables + takes.link


def test_the_fit_finds_the_constants_that_made_the_seconds() -> None:
    steps = [
        dataclasses.replace(
            STEP, keys=keys, dim=dim, exponent=exponent, hosts=hosts, ranks=ranks, state=dim
        )
        for keys, dim, exponent, hosts, ranks in itertools.product(
            (512, 8192), (16, 64), (0.0, 1.2), (1, 2, 4), (1, 2)
        )
    ]
    found = costs.fit(steps, [seconds_of(step, COSTS).total for step in steps])
    for name, value in COSTS.terms().items():
        assert found.terms()[name] == pytest.approx(value, rel=1e-4), name


def test_plan_says_what_the_limit_is() -> None:
    slow_link = planned("--hosts", "8", "--ranks", "4", "--link", "0.1")
    assert slow_link["limit"] == "link"
    slow_model = planned("--hosts", "2", "--model-ms", "500")
    assert slow_model["limit"] == "model"
    parts = [slow_model[f"{part}_seconds"] for part in ("model", "tables", "link")]
    assert slow_model["step_seconds"] == pytest.approx(sum(parts))
    cores = [planned("--cores", cores)["tables_seconds"] for cores in ("2", "16")]
    assert cores[0] > cores[1]
