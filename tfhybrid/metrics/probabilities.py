"""Warning about probabilities that are scored as logits."""

from __future__ import annotations

import logging
import weakref

import numpy as np
from tensorflow import keras

_log = logging.getLogger("tfhybrid.metrics")
_warned: weakref.WeakKeyDictionary[keras.Model, set[str]] = weakref.WeakKeyDictionary()


def warn_of_probabilities(model: keras.Model, output: str, values: np.ndarray) -> None:
    """Warns once for an output of a model whose values are probabilities, as far as one can see.

    Args:
        model: Model that was evaluated.
        output: Name of the output; empty for the only one.
        values: Outputs of all samples, which are scored as logits.
    """
    if not values.size or values.min() < 0 or values.max() > 1 or output in _warned.get(model, ()):
        return
    if not _may_end_in_sigmoid(model, output):
        return
    _warned.setdefault(model, set()).add(output)
    _log.warning(
        "All %d outputs%s lie in [0, 1], as those of a sigmoid do, but are scored as logits: pass "
        "from_logits=False if the model returns probabilities",
        values.size,
        f" '{output}'" if output else "",
    )


def _may_end_in_sigmoid(model: keras.Model, output: str) -> bool:
    """Returns false if the layer of an output is known, and has another activation."""
    names = list(getattr(model, "output_names", None) or [])
    layers = {layer.name: layer for layer in model.layers}
    layer = layers.get(output or (names[0] if len(names) == 1 else ""))
    activation = getattr(layer, "activation", None)
    return activation is None or getattr(activation, "__name__", "sigmoid") == "sigmoid"
