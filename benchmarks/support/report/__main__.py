"""All results as charts, docs/benchmarks.md, and figures in other pages; --run measures anew.

python -m benchmarks.support.report
python -m benchmarks.support.report --run                 # everything: some hours
python -m benchmarks.support.report --run step lookup
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.support.launch import RESULTS, ROOT, benchmark
from benchmarks.support.report.charts import CHARTS, Chart
from benchmarks.support.report.drawing import draw
from benchmarks.support.report.pages import write_pages

PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = ROOT / "docs" / "figures"
INTRODUCTION = """# Benchmarks

This page shows how fast tfhybrid is and how much memory it takes, beside other systems.

`scripts/bench report` writes this page from the numbers in `benchmarks/results/`. With `--run` it
measures all of them again. `benchmarks/README.md` explains how each is measured, and has more of
them. All systems of a chart were measured in one run.

`scripts/bench compare COMMIT NAME` shows what a change did to a benchmark: it runs it with that
commit and with your tree, by turns, and prints what moved by more than the noise.
"""


def main() -> None:
    """Runs what is asked for, draws every result there is, and puts figures into the pages."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.support.report", description=__doc__
    )
    parser.add_argument("--run", nargs="*", choices=CHARTS, help="all of them without a name")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    names = [] if arguments.run is None else arguments.run or list(CHARTS)
    failed = [name for name in names if not measured(name, console)]
    for *_, figure, chart in charts():
        draw(chart, figure)
    PAGE.write_text(page())
    for written in [PAGE, *write_pages()]:
        console.print(f"written: {written.relative_to(ROOT)}")
    if failed:
        sys.exit(f"These failed, and the page has what they measured before: {', '.join(failed)}")


def measured(name: str, console: Console) -> bool:
    """Runs a benchmark; says whether it ended well."""
    console.rule(name)
    command = [sys.executable, "-m", benchmark(name)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def charts() -> Iterator[tuple[str, dict[str, object], Path, Chart]]:
    """Yields every chart, with the benchmark that it is of, its result, and its figure."""
    for name, charts_of in CHARTS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            for number, chart in enumerate(charts_of(result)):
                figure = FIGURES / f"benchmark-{name}{f'-{number}' if number else ''}.svg"
                yield name, result, figure, chart


def page() -> str:
    """Returns the text of the page."""
    parts = [INTRODUCTION]
    for name, result, figure, chart in charts():
        machine = result["machine"]
        parts.append(
            f"## {chart.title}\n\n![{chart.title}](figures/{figure.name})\n\n{chart.meaning}\n\n"
            f"`scripts/bench {name}`, {result['date']}: {machine['processor']}, "
            f"{machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}.\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    main()
