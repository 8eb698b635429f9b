"""Draws a chart as SVG, in one style, readable on light and on dark pages."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.report.charts import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, PEER, BOUND = "#1f6feb", "#8b949e", "#b6a06a"
# Text takes the page's colour: matplotlib draws it in this one, which the file then replaces.
_TEXT = "#010203"
_STYLE = """<style>
svg { color: #24292f; }
@media (prefers-color-scheme: dark) { svg { color: #d0d7de; } }
</style>"""


def draw(chart: Chart, path: Path) -> None:
    """Writes the figure of a chart.

    Args:
        chart: What to draw.
        path: The SVG to write. The same chart makes the same file.
    """
    import matplotlib  # which tests do without
    from matplotlib.figure import Figure

    colors = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _TEXT)
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "font.size": 10, **colors}):
        lines = len(chart.bars) // 2 if chart.dots else len(chart.bars)
        height = 4.8 if chart.curves else 1.0 + 0.36 * lines + 0.28 * len(chart.lanes)
        figure = Figure(figsize=(7.5, height), layout="constrained")
        title = "\n".join(textwrap.wrap(chart.title, 74))
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        axes = figure.subplots()
        _drawing_of(chart)(axes, chart)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.savefig(path, transparent=True, metadata={"Date": None})
    _follow_the_page(path, chart.title)


def _drawing_of(chart: Chart) -> Callable[[Axes, Chart], None]:
    if chart.lanes:
        return _lanes
    if chart.curves:
        return _curves
    return _dots if chart.dots else _bars


def _lanes(axes: Axes, chart: Chart) -> None:
    names = list(chart.lanes)[::-1]
    for place, name in enumerate(names):
        waits = name.endswith((": wait", ": fetch", ": collect", ": exchange"))
        spans = [(begin, end - begin) for begin, end in chart.lanes[name]]
        color = BOUND if name.endswith(": model") else PEER if waits else OURS
        axes.broken_barh(spans, (place - 0.35, 0.7), color=color)
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.set_major_formatter(lambda value, _: chart.unit.format(value))
    axes.grid(axis="x", color=PEER, alpha=0.3)


def _bars(axes: Axes, chart: Chart) -> None:
    sides = list(chart.bars)[::-1]
    values = [chart.bars[side] for side in sides]
    drawn = axes.barh(sides, values, color=[_color(side) for side in sides], height=0.62)
    axes.bar_label(drawn, [chart.unit.format(value) for value in values], padding=4)
    axes.margins(x=0.3)
    axes.xaxis.set_visible(False)


def _dots(axes: Axes, chart: Chart) -> None:
    ours = {
        side.removeprefix("tfhybrid "): value
        for side, value in chart.bars.items()
        if side.startswith("tfhybrid ")
    }
    names = sorted(ours, key=ours.__getitem__)
    published = [chart.bars[f"{name}, published"] for name in names]
    own = [ours[name] for name in names]
    axes.hlines(names, published, own, color=PEER, linewidth=1.5, alpha=0.6)
    axes.plot(published, names, "o", color=PEER, label="published", markersize=8)
    axes.plot(own, names, "o", color=OURS, label="tfhybrid", markersize=8)
    for name, *pair in zip(names, published, own, strict=True):
        label = f"{chart.unit.format(pair[1])}  ({pair[1] - pair[0]:+.4f})"
        axes.annotate(label, (max(pair), name), (9, 0), textcoords="offset points", va="center")
    axes.margins(x=0.05, y=0.08)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high + 0.3 * (high - low))
    axes.grid(axis="x", color=PEER, alpha=0.3)
    axes.legend(loc="lower right", frameon=False)


def _curves(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import LogLocator

    styles = ("-", "--", "-.", ":", (0, (1, 3)))
    for (side, curve), style in zip(chart.curves.items(), styles, strict=False):
        label = side.removeprefix("tfhybrid ")
        drawn = {"linestyle": style, "marker": "o", "color": _color(side), "label": label}
        axes.plot([*curve], [*curve.values()], **drawn)
    over = [*next(iter(chart.curves.values()))]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(over, [f"{value:,.0f}" for value in over])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: chart.unit.format(value))
    axes.set_xlabel(chart.over)
    axes.grid(color=PEER, alpha=0.3)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.2), ncols=2)


def _color(side: str) -> str:
    if side.startswith("bound"):
        return BOUND
    return OURS if side.startswith("tfhybrid") else PEER


def _follow_the_page(path: Path, title: str) -> None:
    """Gives the file a name for readers of screens, and text in the colour of the page."""
    drawing = path.read_text().replace(_TEXT, "currentColor")
    start = drawing.index(">", drawing.index("<svg")) + 1
    named = f"\n<title>{html.escape(title)}</title>\n{_STYLE}"
    path.write_text(drawing[:start] + named + drawing[start:])
