"""Batches whose keys are numbered, and their rows found, while the batches before them train."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.data.layer_calls import LayerCall
from tfhybrid.errors import ConfigError

_log = logging.getLogger("tfhybrid.data")

# A data set with a buffer of n batches is ahead of its reader by n, by the one that it makes next,
# and by the one that the reader has taken and not looked up.
_BESIDE_BUFFER = 2


def numbered_ahead(
    dataset: tf.data.Dataset, batches: int, calls: Sequence[LayerCall]
) -> tf.data.Dataset:
    """Returns the batches of a data set, and numbers keys on its thread, `batches` ahead.

    Args:
        dataset: Batches: a dict of features, or a tuple that begins with one.
        batches: Number of batches that are read ahead.
        calls: Calls of layers. A call with a feature that the data set lacks is left out.

    Raises:
        ConfigError: The data set has no dict of features, or keys of the wrong type or shape.
    """
    spec = dataset.element_spec
    features = spec[0] if isinstance(spec, tuple) else spec
    if not isinstance(features, Mapping):
        raise ConfigError(
            "announce needs batches that are a dict of features, or a tuple that begins with one. "
            f"Received: {spec}"
        )
    covered = [call for call in calls if set(call.features) <= set(features)]
    if distributed.rank() == 0:
        _log.info(
            "Keys are numbered up to %d batch(es) ahead for %d of %d lookups",
            *(batches, len(covered), len(calls)),
        )
    kept = (batches + _BESIDE_BUFFER) * max(len(covered), 1)

    def number(*element: Any) -> Any:
        of_batch = element[0]
        with tf.control_dependencies([call.number_ahead(of_batch, kept) for call in covered]):
            passed = tf.nest.map_structure(tf.identity, element, expand_composites=True)
        return tf.nest.pack_sequence_as(spec, tf.nest.flatten(passed))

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # it would be ahead by more
    return (
        dataset.map(tf.autograph.experimental.do_not_convert(number))
        .prefetch(batches)
        .with_options(options)
    )
