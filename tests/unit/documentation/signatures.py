"""The signatures in docs/keras.md, made of the code.

python -m tests.unit.documentation.signatures    # writes them
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import tfhybrid

PAGE = Path(__file__).parents[3] / "docs" / "keras.md"
# `name(arguments)` in the first column of a table; `name(...)` and `optimizer.join()` stay.
CALL = re.compile(r"`([\w.]+)\((?!\.\.\.\))([^`]*)\)`")
SECTION = "\n## What there is\n"
# Names that are no attributes of tfhybrid.
ELSEWHERE = {"optimizer.join"}


def written(page: str) -> str:
    """Returns the page with the signatures of the code."""
    before, heading, rest = page.partition(SECTION)
    section, next_heading, after = rest.partition("\n## ")
    rows = "".join(_row(line) for line in section.splitlines(keepends=True))
    return before + heading + rows + next_heading + after


def _row(line: str) -> str:
    if not line.startswith("| `"):
        return line
    first, bar, rest = line[2:].partition(" | ")
    return "| " + CALL.sub(_signature, first) + bar + rest


def _signature(call: re.Match[str]) -> str:
    if call[1] in ELSEWHERE:
        return call[0]
    value: Any = tfhybrid
    for name in call[1].split("."):
        value = getattr(value, name)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(value).parameters.values()
    ]
    shown = inspect.Signature(parameters)
    return f"`{call[1]}{str(shown).replace(chr(39), chr(34))}`"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
