"""The numbers in TensorBoard's event files."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf


def read(directory: Path) -> dict[str, dict[int, float]]:
    """Returns what was written by tag and step."""
    found: dict[str, dict[int, float]] = {}
    (run,) = directory.iterdir()
    for path in run.iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"  # or it is not drawn
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found
