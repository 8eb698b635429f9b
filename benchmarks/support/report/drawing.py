"""Draws a chart as SVG, in one style, readable on light and dark pages and on a phone.

The files are small: text is text, a path is one line with few digits, and there is no metadata.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.report.charts import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path as MatplotlibPath

OURS, PEER, BOUND = "#1f6feb", "#8b949e", "#b6a06a"
# Text takes the page's colour: matplotlib draws it in this one, which the file then replaces.
_TEXT = "#010203"
_STYLE = """<style>
svg { color: #24292f; }
@media (prefers-color-scheme: dark) { svg { color: #d0d7de; } }
</style>"""
# Ids of clip paths are hashes with this salt, and so the same in every run.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "tfhybrid", "font.sans-serif": ["DejaVu Sans"]}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# A phone shows 360 of the figure's 480 CSS pixels: text is then 11 pixels high.
_WIDTH, _FONT_SIZE = 5.0, 11
_LETTERS_OF_TITLE = 46


def draw(chart: Chart, path: Path) -> None:
    """Writes the figure of a chart.

    Args:
        chart: What to draw.
        path: The SVG to write. The same chart makes the same file.
    """
    import matplotlib  # which tests do without
    from matplotlib.figure import Figure

    colors = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _TEXT)
    with matplotlib.rc_context({**_SETTINGS, "font.size": _FONT_SIZE, **colors}):
        name, _, direction = chart.title.partition(" (")
        title = textwrap.wrap(name, _LETTERS_OF_TITLE) + ([f"({direction}"] if direction else [])
        height = _height_of(chart) + 0.2 * len(title)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize=_FONT_SIZE, fontweight="bold")
        axes = figure.subplots()
        _drawing_of(chart)(axes, chart)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.savefig(path, transparent=True, metadata=_NO_METADATA)
    path.write_text(_shortened(_with_title(path.read_text(), chart.title)))


def _height_of(chart: Chart) -> float:
    """Returns the height below the title, in inches."""
    if chart.curves:
        return 4.6
    if chart.lanes:
        return 0.5 + 0.3 * len(chart.lanes)
    return 0.9 + 0.2 * len(chart.bars) if chart.dots else 0.3 + 0.46 * len(chart.bars)


def _drawing_of(chart: Chart) -> Callable[[Axes, Chart], None]:
    if chart.lanes:
        return _lanes
    if chart.curves:
        return _curves
    return _dots if chart.dots else _bars


def _lanes(axes: Axes, chart: Chart) -> None:
    from matplotlib.patches import PathPatch

    names = list(chart.lanes)[::-1]
    for place, name in enumerate(names):
        waits = name.endswith((": wait", ": fetch", ": collect", ": exchange"))
        color = BOUND if name.endswith(": model") else PEER if waits else OURS
        # Edges of the same colour show spans that are shorter than a dot.
        axes.add_patch(PathPatch(_lane(chart.lanes[name], place), color=color))
    axes.autoscale_view()
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.set_major_formatter(lambda value, _: chart.unit.format(value))
    axes.grid(axis="x", color=PEER, alpha=0.3)


def _lane(spans: list[tuple[float, float]], place: int) -> MatplotlibPath:
    """Returns one path for all spans of a lane."""
    from matplotlib.path import Path as MatplotlibPath

    low, high = place - 0.35, place + 0.35
    corners = [[(a, low), (b, low), (b, high), (a, high), (a, low)] for a, b in spans]
    return MatplotlibPath.make_compound_path(*(MatplotlibPath(c, closed=True) for c in corners))


def _bars(axes: Axes, chart: Chart) -> None:
    values = list(chart.bars.values())
    places = range(len(values))
    colors = [_color(side) for side in chart.bars]
    drawn = axes.barh(places, values, color=colors, height=0.42)
    axes.bar_label(drawn, [chart.unit.format(value) for value in values], padding=4)
    # Names stand above the bars, which need all the width of a phone.
    for place, side in zip(places, chart.bars, strict=True):
        axes.annotate(side, (0, place - 0.25), va="bottom")
    axes.set_xlim(0, 1.5 * max(values))
    axes.set_ylim(len(values) - 0.7, -0.8)
    axes.axis("off")


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
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(-0.1, -0.16))


def _color(side: str) -> str:
    if side.startswith("bound"):
        return BOUND
    return OURS if side.startswith("tfhybrid") else PEER


def _with_title(drawing: str, title: str) -> str:
    """Gives a drawing a name for readers of screens, and text in the colour of the page."""
    drawing = drawing.replace(_TEXT, "currentColor")
    start = drawing.index(">", drawing.index("<svg")) + 1
    return f"{drawing[:start]}\n<title>{html.escape(title)}</title>\n{_STYLE}{drawing[start:]}"


def _shortened(drawing: str) -> str:
    """Writes an element a line, its numbers with two decimals, and no group of a single element."""
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'="[^"]*"', lambda attribute: _rounded(attribute[0]), drawing)
    drawing = re.sub(r' transform="rotate\(-?0 [^"]*"|^ *<g id="\w+"/>\n', "", drawing, flags=re.M)
    return re.sub(r'^ *<g id="\w+">\n *(<[^g].*\n) *</g>\n', r"\1", drawing, flags=re.M)


def _rounded(attribute: str) -> str:
    numbers = re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 2):g}", attribute)
    return re.sub(r"\s+", " ", numbers)
