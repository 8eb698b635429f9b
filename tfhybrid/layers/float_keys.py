"""Check of keys that reach a model as floats, which Keras casts to the integers of its Input."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

_log = logging.getLogger("tfhybrid.layers")
_warned: set[str] = set()

# Operations that change the shape of a tensor or nothing at all.
_SHAPING = ("Identity", "ExpandDims", "Squeeze", "Reshape", "StridedSlice")
# Operations that bring data into a graph.
_FED = ("Placeholder", "IteratorGetNext")
# Bits of the significand: every integer up to 2**bits is a float of that type.
_BITS = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}


def checks_of(feature: str, keys: Any) -> list[tf.Operation]:
    """Returns assertions that fail if keys were rounded when they became floats.

    `fit` converts arrays of floats to float32, and Keras casts them to the dtype of an `Input`, so
    that different keys become one. The layer sees the cast in the graph. There is no assertion for
    keys that are cast elsewhere, or for a model that runs eagerly.

    Args:
        feature: Name of the feature, for errors.
        keys: Integer keys: a tensor, `tf.RaggedTensor` or `tf.SparseTensor`.
    """
    floats = _source(keys)
    return [] if floats is None else _checks(feature, floats)


def as_integers(feature: str, keys: Any) -> Any:
    """Returns keys as int64 if they are floats, as those of an `Input` without a dtype.

    Args:
        feature: Name of the feature, for errors.
        keys: Tensor, `tf.RaggedTensor` or `tf.SparseTensor`. Integers are returned unchanged.

    Raises:
        tf.errors.InvalidArgumentError: When the op runs, floats are too large to be exact.
    """
    if isinstance(keys, tf.RaggedTensor):
        return keys.with_flat_values(as_integers(feature, keys.flat_values))
    if isinstance(keys, tf.SparseTensor):
        return keys.with_values(as_integers(feature, keys.values))
    tensor = tf.convert_to_tensor(keys)
    if tensor.dtype not in _BITS:
        return keys
    with tf.control_dependencies(_checks(feature, tensor)):
        return tf.cast(tensor, tf.int64)


def _checks(feature: str, floats: tf.Tensor) -> list[tf.Operation]:
    """Returns assertions that fail if floats may be rounded integers, and warns once."""
    dtype, bits = floats.dtype.name, _BITS[floats.dtype]
    if feature not in _warned:
        _warned.add(feature)
        _log.warning(
            "The keys of feature '%s' are fed as %s, which holds only integers below 2**%d, and "
            "fractions are cut off. Feed int64",
            feature,
            dtype,
            bits,
        )
    bound = tf.constant(2**bits, floats.dtype)
    # Not assert_less: NaN must fail too.
    is_exact = tf.reduce_all(tf.abs(floats) < bound)
    message = (
        f"Keys of feature '{feature}' must be integers below 2**{bits} if they are fed as {dtype}, "
        "which rounds larger ones: feed int64. Received:"
    )
    check = tf.debugging.Assert(is_exact, [message, floats])
    return [] if check is None else [check]


def _source(keys: Any) -> tf.Tensor | None:
    """Returns the floats that were fed and cast to these keys, or `None`."""
    if isinstance(keys, tf.RaggedTensor):
        keys = keys.flat_values
    elif isinstance(keys, tf.SparseTensor):
        keys = keys.values
    cast = _maker(keys)
    if cast is None or cast.type != "Cast" or cast.inputs[0].dtype not in _BITS:
        return None
    fed = _maker(cast.inputs[0])
    return cast.inputs[0] if fed is not None and fed.type in _FED else None


def _maker(tensor: Any) -> Any:
    """Returns the operation that computes a tensor, without those that only change its shape."""
    operation = getattr(tensor, "op", None)  # an eager tensor has none
    while operation is not None and operation.type in _SHAPING:
        operation = operation.inputs[0].op
    return operation
