"""Memory of one host's ranks with a large table: their summed PSS, against peers.

python -m benchmarks.hosts.memory [--ranks 4] [--rows 8388608]
"""

from __future__ import annotations

import argparse
import logging

from rich.console import Console
from rich.table import Table

from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.hosts.memory")
SIDES = {
    "plain": "benchmarks.hosts.memory.plain_horovod",
    "torchrec": "benchmarks.hosts.memory.torchrec_memory",
    "tfhybrid": "benchmarks.hosts.memory.tfhybrid_memory",
}
LIMIT = 1.1


def mib(value: object) -> str:
    """Returns bytes as whole MiB."""
    return f"{int(value) / 2**20:,.0f}"


def show(results: list[dict[str, object]]) -> None:
    """Prints the comparison as a table."""
    table = Table(title="summed PSS of the ranks, MiB")
    for heading in ("side", "ranks", "payload", "before", "after", "growth", "growth / payload"):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for row in results:
        sizes = [mib(row[name]) for name in ("payload_bytes", "pss_before", "pss_after")]
        growth = row["pss_growth"]
        ratio = f"{growth / row['payload_bytes']:.2f}"
        table.add_row(row["side"], str(row["ranks"]), *sizes, mib(growth), ratio)
    Console().print(table)


def show_table_bytes(row: dict[str, object]) -> None:
    """Says what tfhybrid's table is made of and how its growth compares with the limit."""
    parts = ", ".join(
        f"{name} {mib(row[f'{name}_bytes'])}" for name in ("embedding", "state", "index")
    )
    LOGGER.info(
        "tfhybrid: %s rows, %s MiB (%s); index %.2f bytes per key; growth / table.stats().bytes "
        "%.3f (limit %.1f)",
        f"{row['rows']:,}",
        mib(row["table_bytes"]),
        parts,
        row["index_bytes_per_key"],
        row["growth_to_table"],
        LIMIT,
    )


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/memory.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts.memory", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--name", default="memory", help="name of the result file")
    # What this parser does not know goes to every side: see benchmarks/hosts/memory/footprint.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = []
    for name in arguments.sides:
        LOGGER.info("%s on %d ranks", name, arguments.ranks)
        python = launch.peer_python(name) if name == "torchrec" else None
        results.append(launch.run_side(SIDES[name], options, arguments.ranks, python))
    show(results)
    for row in results:
        if "table_bytes" in row:
            show_table_bytes(row)
    setting = {"ranks": arguments.ranks, "options": options}
    path = launch.write_result(arguments.name, {"setting": setting, "runs": results})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
