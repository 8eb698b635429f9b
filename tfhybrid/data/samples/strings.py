"""Keys for features whose values are strings."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhybrid.errors import ConfigError

_KEYS = 2**63 - 1


def string_keys(strings: Any) -> Any:
    """Hashes strings to keys, 0 to 2^63 - 2, in a data pipeline or in a model's own `call`.

    For functional models, and for exported models whose clients send strings, use
    `tfhybrid.layers.StringKeys`, which computes the same keys.

    The hash is FarmHash's Fingerprint64 modulo 2^63 - 1 (`tf.strings.to_hash_bucket_fast`). It is
    the same on every machine and in every version of TensorFlow, and an exported model can compute
    it. The probability that any two of 10^8 different strings get the same key is 1 in 1,800.

    Args:
        strings: Strings of any shape: a `tf.string` tensor, `tf.RaggedTensor` or
            `tf.SparseTensor`.

    Returns:
        Keys, int64 of the same kind and shape.

    Raises:
        ConfigError: `strings` has another dtype, or is an input of a functional model.

    Example:

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> tfhybrid.data.string_keys(tf.constant(["shoes", ""])).numpy().tolist()
    [2059773308624955402, 1936946117179621456]
    """
    if isinstance(strings, tf.RaggedTensor):
        return strings.with_flat_values(string_keys(strings.flat_values))
    if isinstance(strings, tf.SparseTensor):
        return strings.with_values(string_keys(strings.values))
    if isinstance(strings, getattr(tf.keras, "KerasTensor", ())):
        raise ConfigError(
            "string_keys needs actual strings. For a functional model's Input use the layer "
            f"tfhybrid.layers.StringKeys()(inputs). Received: {strings!r}"
        )
    tensor = tf.convert_to_tensor(strings)
    if tensor.dtype != tf.string:
        raise ConfigError(f"string_keys needs strings. Received: {tensor.dtype.name}")
    return tf.strings.to_hash_bucket_fast(tensor, _KEYS)
