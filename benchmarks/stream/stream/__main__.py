"""Online training: samples a second, a backlog, many models, and what fresh weights are worth.

python -m benchmarks.stream.stream throughput [--trainers 2 4] [--rounds 3]
python -m benchmarks.stream.stream backlog [--samples 10000000]
python -m benchmarks.stream.stream speeds [--slower 4]
python -m benchmarks.stream.stream models [--models 8]
python -m benchmarks.stream.stream bad_rows [--rounds 5] [--backlog]
python -m benchmarks.stream.stream freshness [--seeds 3]

Each tells its progress and writes `benchmarks/results/stream_COMMAND.json`; `freshness` draws, too.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

from benchmarks.stream.stream import bad_rows, freshness, load, throughput
from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.stream.stream")


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream.stream", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    throughput.options(commands.add_parser("throughput"))
    load.options(commands.add_parser("backlog"), samples=10_000_000, models=1)
    load.speed_options(commands.add_parser("speeds"))
    load.options(commands.add_parser("models"), samples=2_000_000, models=8)
    bad_rows.options(commands.add_parser("bad_rows"))
    freshness.options(commands.add_parser("freshness"))
    for command in commands.choices.values():
        command.add_argument("--name", help="name of the result file")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    measure = {
        "throughput": throughput.measure,
        "backlog": load.measure,
        "speeds": load.measure_speeds,
        "models": load.measure,
        "bad_rows": bad_rows.measure,
        "freshness": freshness.measure,
    }
    found: dict[str, Any] = measure[chosen.command](chosen)
    path = launch.write_result(chosen.name or f"stream_{chosen.command}", found)
    if chosen.command == "freshness":
        freshness.draw(found["auc"], path.with_suffix(".png"))
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
