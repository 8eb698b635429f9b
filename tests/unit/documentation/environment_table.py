"""The table of environment variables in docs/architecture.md, made from `settings.VARIABLES`.

python -m tests.unit.documentation.environment_table    # writes it
"""

from __future__ import annotations

import re
from pathlib import Path

from tfhybrid.settings import VARIABLES

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
BEGIN, END = "<!-- environment -->\n", "<!-- end of environment -->\n"

# Page that says more about a variable, by the variable's name.
LINKS = {
    "TFHYBRID_METRICS_PORT": "[Operations](operations.md)",
    "TFHYBRID_TIMELINE": "[Tuning](tuning.md)",
    "TFHYBRID_SILENCE_SECONDS": "[Concurrency](concurrency.md#liveness)",
    "TFHYBRID_TLS_CERT": "[Sharded tables](sharded_tables.md#encryption)",
    "TFHYBRID_NODES": "[Tables on embedding nodes](split_roles.md)",
    "TFHYBRID_NODE_NAME": "[Tables on embedding nodes](split_roles.md)",
    "TFHYBRID_STREAM": "[Online training](online_training.md)",
    "TFHYBRID_STREAM_TRAINER": "[Online training](online_training.md)",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "[Concurrency](concurrency.md#liveness)",
    "HOROVOD_DISABLE_GROUP_FUSION": "[Reduction of gradients](reduction.md#order-and-bits)",
    "HOROVOD_CYCLE_TIME": "[Tuning](tuning.md)",
}


def table() -> str:
    """Returns the table, a variable per row."""
    lines = ["| Variable | Default | Meaning | See |", "| --- | --- | --- | --- |"]
    for each in VARIABLES:
        link = LINKS.get(each.name, "")
        lines.append(f"| `{each.name}` | {each.default} | {each.meaning} | {link} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Returns the page with its table made anew."""
    pattern = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    assert pattern.search(page), f"{PAGE.name} has no {BEGIN.strip()}"
    return pattern.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
