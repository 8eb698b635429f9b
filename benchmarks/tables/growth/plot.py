"""The picture of a growth run: step time and index over the rows of the table."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.support.report.drawing import OURS, PEER


def save(run: dict[str, object], median: float, path: Path) -> None:
    """Draws every step's milliseconds, five medians, and the bytes of the index.

    Args:
        run: what `benchmarks.tables.growth.train` printed.
        median: the median step in milliseconds.
        path: a PNG file.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    title = "A step, and the index, while a table grows"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    times, index = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    times.plot(
        [rows / 1e6 for rows in run["rows"]], run["milliseconds"], ".", color=OURS, markersize=3
    )
    times.axhline(5 * median, color=PEER, linewidth=1, label="5 x the median")
    times.set_ylabel("ms a step")
    times.set_ylim(bottom=0)
    times.legend(loc="upper left")
    rows = [stats["rows"] / 1e6 for stats in run["stats"]]
    mebibytes = [stats["index_bytes"] / 2**20 for stats in run["stats"]]
    index.step(rows, mebibytes, color=OURS, where="post")
    index.set_xlabel("million rows")
    index.set_ylabel("MiB of index")
    index.set_ylim(bottom=0)
    figure.savefig(path, dpi=120)
