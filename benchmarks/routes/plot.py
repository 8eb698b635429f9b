"""Draws what benchmarks.routes measured beside the model, for docs/several_hosts.md.

python -m benchmarks.routes.plot
"""

from __future__ import annotations

import json
import logging

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import launch
from benchmarks.routes import model

LOGGER = logging.getLogger("benchmarks.routes")
FIGURE = launch.ROOT / "docs" / "figures" / "several_hosts.svg"
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


def draw_seconds(axes: Axes, results: list[dict]) -> None:
    """Draws milliseconds of a step over the number of hosts, by each way."""
    hosts = np.array([result["hosts"] for result in results])
    for shift, (route, colour) in zip((-0.25, 0.25), COLOURS.items(), strict=True):
        measured = [result["milliseconds"][route] for result in results]
        axes.bar(hosts + shift, measured, 0.5, color=colour, label=NAMES[route])
    chosen = [result["milliseconds"]["chosen"] for result in results]
    axes.plot(hosts, chosen, "kD", label="chosen by the cost model")
    axes.set(xlabel="hosts", ylabel="ms a step", ylim=0, xticks=hosts)


def main() -> None:
    """Reads `benchmarks/results/routes.json` and writes the figure."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = json.loads((launch.RESULTS / "routes.json").read_text())["results"]
    kinds = list(dict.fromkeys(result["ids"] for result in results))
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    rows = figure.subplots(2, len(kinds), squeeze=False)
    for column, ids in enumerate(kinds):
        of_kind = [result for result in results if result["ids"] == ids]
        draw_bytes(rows[0][column], of_kind)
        draw_seconds(rows[1][column], of_kind)
        rows[0][column].set_title(f"{ids} ids")
    for row in rows:
        row[0].legend(frameon=False, fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    LOGGER.info("%s", FIGURE.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
