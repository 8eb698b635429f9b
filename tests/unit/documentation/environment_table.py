"""The table of environment variables in docs/operations.md, made from `settings.VARIABLES`.

python -m tests.unit.documentation.environment_table    # writes it
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.documentation.marked_part import with_part
from tfhybrid.settings import VARIABLES

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"

# Page that says more about a variable, by the variable's name.
LINKS = {
    "TFHYBRID_METRICS_PORT": "[Metrics](#metrics)",
    "TFHYBRID_METRICS_HOST": "[Metrics](#metrics)",
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
    "TF_CPP_MIN_LOG_LEVEL": "[Messages](#messages-of-other-libraries)",
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
    return with_part(page, "environment", table())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
