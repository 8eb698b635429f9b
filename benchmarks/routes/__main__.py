"""Ways of gradients between hosts: bytes into a host and milliseconds, measured and predicted.

    python -m benchmarks.routes [--hosts 2 4 6] [--ids zipf uniform] [--rate 1gbit]

The step is that of `benchmarks.step`, one rank per host, by each way and by the one that tfhybrid
chooses. The bytes of the dense gradients are those of the step without tables. Needs root.
"""

from __future__ import annotations

import argparse
import logging
import re

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import launch
from benchmarks.hosts.run import run_on_hosts
from benchmarks.routes import model
from benchmarks.step.model import Batches, StepConfig, add_options, config_of
from tests.integration import hosts as several

LOGGER = logging.getLogger("benchmarks.routes")
ROUTES = (model.ALLGATHER, model.OWNER_REDUCE)
CHOSEN = "chosen"
CHOICE = re.compile(
    r"gradients travel between hosts by (\S+): predicted ([0-9.]+) ms.*measured ([0-9.]+) ms"
)
STEPS_COUNTED = 5


def run(module: str, options: list[str], hosts: int, rate: str) -> dict[str, object]:
    """Runs a side on so many hosts of one rank; returns its result and what it said it chose."""
    output = run_on_hosts(["-m", module, *options], hosts, 1, rate)
    result = launch.result_in(output)
    if said := CHOICE.search(output):
        result["choice"] = {
            "route": said[1],
            "predicted_milliseconds": float(said[2]),
            "measured_milliseconds": float(said[3]),
        }
    return result


def keys_of(config: StepConfig, hosts: int) -> model.Keys:
    """Counts the distinct keys of the first measured steps."""
    of_ranks = [list(Batches(config, rank, hosts).measured(STEPS_COUNTED)) for rank in range(hosts)]

    def distinct(parts: list[np.ndarray]) -> int:
        features = zip(*parts, strict=True)  # of each, the ids on every rank
        return sum(len(np.unique(np.concatenate(ids))) for ids in features)

    own, union = [], []
    for step in range(STEPS_COUNTED):
        parts = [batches[step][0] for batches in of_ranks]
        own += [distinct([part]) for part in parts]
        union.append(distinct(parts))
    return model.Keys(float(np.mean(own)), float(np.mean(own)), float(np.mean(union)), config.dim)


def compare(config: StepConfig, hosts: int, rate: str, rounds: int) -> dict[str, object]:
    """Runs all ways in turn; returns medians, and what the model says of each."""
    keys = keys_of(config, hosts)
    options = [f"--{name}={value}" for name, value in vars(config).items()]
    runs: dict[str, list[dict[str, object]]] = {name: [] for name in (*ROUTES, CHOSEN, "bound")}
    for _ in range(rounds):
        for name, done in runs.items():
            module, own = "benchmarks.step.tfhybrid_step", [f"--sync={name}"]
            if name == "bound":
                module, own = "benchmarks.step.bound", []
            done.append(run(module, [*options, *([] if name == CHOSEN else own)], hosts, rate))
            LOGGER.info("%d hosts, %s, %s: %s", hosts, config.ids, name, done[-1])
    milliseconds, received = (
        {name: float(np.median([one[field] for one in done])) for name, done in runs.items()}
        for field in ("milliseconds_per_step", "received_bytes_per_step")
    )
    best = min(milliseconds[route] for route in ROUTES)
    return {
        "hosts": hosts,
        "ids": config.ids,
        "keys": {"host": keys.host, "union": keys.union},
        "milliseconds": milliseconds,
        "received_bytes": {
            route: received[route] - received["bound"] for route in (*ROUTES, CHOSEN)
        },
        "model_bytes": {route: model.received_bytes(keys, hosts, route) for route in ROUTES},
        "byte_limit": model.byte_limit(keys, hosts),
        "choices": [one.get("choice") for one in runs[CHOSEN]],
        "chosen_to_better": milliseconds[CHOSEN] / best,
        "runs": runs,
    }


def show(results: list[dict[str, object]], title: str) -> None:
    """Prints the comparison as a table."""
    table = Table(title=title)
    for heading in ("hosts", "ids", "way", "ms/step", "MB into a host", "model", "to limit"):
        table.add_column(heading, justify="right" if heading not in ("ids", "way") else "left")
    for result in results:
        for route in (*ROUTES, CHOSEN):
            received = result["received_bytes"][route]
            predicted = result["model_bytes"].get(route)
            table.add_row(
                str(result["hosts"]),
                result["ids"],
                route,
                f"{result['milliseconds'][route]:.1f}",
                f"{received / 1e6:.2f}",
                "" if predicted is None else f"{predicted / 1e6:.2f}",
                f"{received / result['byte_limit']:.2f}",
            )
    Console().print(table)


def parse() -> argparse.Namespace:
    """Returns the parsed options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.routes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    parser.set_defaults(rows=1_000_000, batch=2048, windows=3)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--rate", default="1gbit", help="of each host's link")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--distributions", nargs="+", default=["zipf", "uniform"])
    if reason := several.missing():
        parser.error(f"there can be no hosts here: {reason}")
    return parser.parse_args()


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/routes.json`."""
    arguments = parse()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = []
    for hosts in arguments.hosts:
        for ids in arguments.distributions:
            arguments.ids = ids
            config = config_of(arguments)
            results.append(compare(config, hosts, arguments.rate, arguments.rounds))
    setting = {name: getattr(arguments, name) for name in ("rate", "rounds", "rows", "batch")}
    show(results, f"one rank per host, link {arguments.rate}, {arguments.rounds} round(s)")
    path = launch.write_result("routes", {"setting": setting, "results": results})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
