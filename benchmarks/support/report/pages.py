"""Puts the figures of the results into the pages that quote them.

python -m benchmarks.support.report.pages            # writes the pages
python -m benchmarks.support.report.pages --list     # prints the name and text of every figure

A page names a figure in a comment right behind the number, which readers do not see:
`282,900<!-- step.tfhybrid --> samples/s`, or `**282,900**<!-- step.tfhybrid -->`.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rich.console import Console

from benchmarks.support.launch import ROOT
from benchmarks.support.report.figures import figures

_NAME = r"<!-- (?P<name>[\w-]+(?:\.[\w-]+)+) -->"
# Behind the number, as a comment at the start of a line would end the paragraph on the site.
_QUOTED = re.compile(rf"\d[\d,]*(?:\.\d+)?(?P<end>\**{_NAME})")


def main() -> None:
    """Writes the pages, or prints the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.support.report.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="print the name and text of each")
    console = Console(highlight=False)
    if parser.parse_args().list:
        for name, text in figures().items():
            console.print(f"{name} {text}", soft_wrap=True)
        return
    for page in write_pages():
        console.print(f"written: {page.relative_to(ROOT)}")


def pages() -> list[Path]:
    """Returns the pages that may quote figures."""
    return [
        ROOT / "README.md",
        ROOT / "benchmarks/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def figures_named(text: str) -> list[str]:
    """Returns the names of the figures that a text quotes."""
    return [comment["name"] for comment in re.finditer(_NAME, text)]


def write_pages() -> list[Path]:
    """Puts every figure into the pages, and returns those that have changed."""
    changed = []
    for page in pages():
        text = page.read_text()
        if (renewed := with_figures(text)) != text:
            page.write_text(renewed)
            changed.append(page)
    return changed


def with_figures(text: str) -> str:
    """Returns the text of a page with the figures of the results.

    Args:
        text: The text of the page.

    Raises:
        ValueError: A comment names no figure of the results, or does not follow a number.
    """
    quoted = {found.end() for found in _QUOTED.finditer(text)}
    for comment in re.finditer(_NAME, text):
        name = comment["name"]
        if name not in figures():
            raise ValueError(f"no result has the figure {name}; see --list for those there are.")
        if comment.end() not in quoted:
            raise ValueError(f"the comment {comment[0]} does not follow a number.")
    return _QUOTED.sub(lambda found: figures()[found["name"]] + found["end"], text)


if __name__ == "__main__":
    main()
