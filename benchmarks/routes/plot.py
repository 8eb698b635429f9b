"""Draws what benchmarks.routes measured beside the model, for docs/several_hosts.md.

python -m benchmarks.routes.plot
"""

from __future__ import annotations

import json
import logging

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import launch
from benchmarks.routes import model
from benchmarks.step.model import StepConfig

LOGGER = logging.getLogger("benchmarks.routes")
FIGURE = launch.ROOT / "docs" / "figures" / "several_hosts.svg"
# The tower of the step, and the machine: two processors for all hosts, links of 1 Gbit/s.
PARAMETERS = (26 * 16 + 1) * 256 + 257 * 128 + 129
MACHINE = model.Costs(rank=0.0, rank_key=0.0, key=0.0, byte=8e-9, cores=2, shared=True)
FITTED_HOSTS = (2, 4)
COLOURS = {model.ALLGATHER: "#d95f02", model.OWNER_REDUCE: "#1b9e77"}
NAMES = {model.ALLGATHER: "allgather", model.OWNER_REDUCE: "owner-reduce"}


def draw_bytes(axes: Axes, results: list[dict]) -> None:
    """Draws MB into a host over the number of hosts: the model as lines, measured as points."""
    hosts = [result["hosts"] for result in results]
    for route, colour in COLOURS.items():
        predicted = [result["model_bytes"][route] / 1e6 for result in results]
        measured = [result["received_bytes"][route] / 1e6 for result in results]
        axes.plot(hosts, predicted, color=colour, label=f"{NAMES[route]}, model")
        axes.plot(hosts, measured, "o", color=colour, label=f"{NAMES[route]}, measured")
    limit = [result["byte_limit"] / 1e6 for result in results]
    axes.plot(hosts, limit, ":", color="grey", label="union + owner's share")
    axes.set(xlabel="hosts", ylabel="MB into a host and step", ylim=0, xticks=hosts)


def step_of(result: dict, route: str) -> model.Step:
    """Returns the step that was measured."""
    host, union = result["keys"]["host"], result["keys"]["union"]
    keys = model.Keys(host, host, union, StepConfig.dim)
    return model.Step(keys, result["hosts"], 1, route, PARAMETERS)


def fitted(results: list[dict]) -> model.Costs:
    """Returns what fits the steps on few hosts; those on more are for the model to predict."""
    measured = [(step_of(r, route), r["milliseconds"][route]) for r in results for route in COLOURS]
    few = [(step, value / 1e3) for step, value in measured if step.hosts in FITTED_HOSTS]
    costs = model.fit(MACHINE, *zip(*few, strict=True))
    for step, value in measured:
        predicted = 1e3 * step.seconds(costs)
        LOGGER.info(
            "%d hosts, %.0f keys, %s: %.1f ms, predicted %.1f (%+.0f %%)",
            *(step.hosts, step.keys.host, step.route, value, predicted),
            100 * (predicted / value - 1),
        )
    LOGGER.info(
        "%.1f ms a rank, %.0f ns a key of a rank, %.0f ns a key merged or applied",
        *(1e3 * costs.rank, 1e9 * costs.rank_key, 1e9 * costs.key),
    )
    return costs


def draw_seconds(axes: Axes, results: list[dict], costs: model.Costs) -> None:
    """Draws milliseconds of a step over the number of hosts: the model as lines."""
    hosts = [result["hosts"] for result in results]
    for route, colour in COLOURS.items():
        predicted = [1e3 * step_of(result, route).seconds(costs) for result in results]
        measured = [result["milliseconds"][route] for result in results]
        axes.plot(hosts, predicted, color=colour)
        axes.plot(hosts, measured, "o", color=colour)
    chosen = [result["milliseconds"]["chosen"] for result in results]
    axes.plot(hosts, chosen, "kx", label="chosen by the cost model")
    axes.set(xlabel="hosts", ylabel="ms a step", ylim=0, xticks=hosts)


def main() -> None:
    """Reads `benchmarks/results/routes.json` and writes the figure."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = json.loads((launch.RESULTS / "routes.json").read_text())["results"]
    kinds = list(dict.fromkeys(result["ids"] for result in results))
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    rows = figure.subplots(2, len(kinds), squeeze=False)
    costs = fitted(results)
    for column, ids in enumerate(kinds):
        of_kind = [result for result in results if result["ids"] == ids]
        draw_bytes(rows[0][column], of_kind)
        draw_seconds(rows[1][column], of_kind, costs)
        rows[0][column].set_title(f"{ids} ids")
    for row in rows:
        row[0].legend(frameon=False, fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    LOGGER.info("%s", FIGURE.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
