"""The initial value of an embedding, in stock TensorFlow operations."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid.errors import ConfigError

_WORD = 2**64 - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_LN_2 = 0.69314718055994531
_NORMAL_BELOW_MINUS_TWO = 0.022750131948179207
_NORMAL_WITHIN_TWO = 0.95449973610364158

# AS 241 PPND7, highest power first.
_CENTRAL_NUMERATOR = (59.109374720, 159.29113202, 50.434271938, 3.3871327179)
_CENTRAL_DENOMINATOR = (67.187563600, 78.757757664, 17.895169469, 1.0)
_TAIL_NUMERATOR = (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777)
_TAIL_DENOMINATOR = (0.12021132975, 0.73700164250, 1.0)


def initial_values(
    initializer_kind: str, a: float, b: float, table_seed: int, keys: tf.Tensor, dim: int
) -> tf.Tensor:
    """Returns the embeddings of keys without a row.

    They have the same bits as in the native store (formulas:
    `custom_ops/core/compute/initializer.h`), but need no custom operation. An exported model calls
    this for unknown keys, so that plain TensorFlow serves the values that training would have read.
    XLA may fuse multiplication and addition, which can change the last bit.

    Args:
        initializer_kind: `"zeros"`, `"constant"`, `"uniform"`, `"normal"` or `"truncated_normal"`.
        a: Constant, minimum or mean.
        b: Maximum or standard deviation; unused by `"zeros"` and `"constant"`.
        table_seed: Seed of the table in [0, 2**64); see `table_seed`.
        keys: int64 `[n]`, any values.
        dim: Length of an embedding.

    Returns:
        float32 `[n, dim]`.

    Raises:
        ConfigError: The kind is unknown.

    Example:

    >>> seed = table_seed(0, "item")
    >>> initial_values("uniform", -0.05, 0.05, seed, tf.constant([7, -1], tf.int64), 16).shape
    TensorShape([2, 16])
    """
    keys = tf.convert_to_tensor(keys, tf.int64)
    if initializer_kind in ("zeros", "constant"):
        value = a if initializer_kind == "constant" else 0.0
        return tf.fill([tf.size(keys), dim], tf.constant(value, tf.float32))
    u = _unit_samples(keys, table_seed, dim)
    if initializer_kind == "uniform":
        return tf.cast(a + (b - a) * u, tf.float32)
    if initializer_kind == "normal":
        return tf.cast(a + b * _normal_quantile(u), tf.float32)
    if initializer_kind == "truncated_normal":
        u = _NORMAL_BELOW_MINUS_TWO + _NORMAL_WITHIN_TWO * u
        return tf.cast(a + b * tf.clip_by_value(_normal_quantile(u), -2.0, 2.0), tf.float32)
    raise ConfigError(
        "initializer_kind must be zeros, constant, uniform, normal or truncated_normal. "
        f"Received: {initializer_kind!r}"
    )


def table_seed(job_seed: int, table_name: str) -> int:
    """Returns the seed of a table, which differs between tables of one job.

    Args:
        job_seed: The `seed` of `tfhybrid.init`; taken modulo 2**64.
        table_name: Name of the table.

    Returns:
        A number in [0, 2**64), the same as in the native store.

    Example:

    >>> table_seed(0, "item") != table_seed(0, "user")
    True
    """
    name_hash = 0xCBF29CE484222325  # FNV-1a
    for byte in table_name.encode():
        name_hash = ((name_hash ^ byte) * 0x100000001B3) & _WORD
    return _mix64_int(_mix64_int((job_seed + _GOLDEN_GAMMA) & _WORD) ^ name_hash)


def _mix64_int(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def _uint64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _mix64(z: tf.Tensor) -> tf.Tensor:
    def fold(z: tf.Tensor, shift: int) -> tf.Tensor:
        return tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, _uint64(shift)))

    z = fold(z, 30) * _uint64(0xBF58476D1CE4E5B9)
    z = fold(z, 27) * _uint64(0x94D049BB133111EB)
    return fold(z, 31)


def _unit_samples(keys: tf.Tensor, seed: int, dim: int) -> tf.Tensor:
    """Returns u(key, column) in (0, 1): float64 `[n, dim]`."""
    key_hash = _mix64(tf.bitcast(keys, tf.uint64) + _uint64(_GOLDEN_GAMMA))
    row_hash = _mix64(tf.bitwise.bitwise_xor(key_hash, _uint64(seed)))
    columns = tf.cast(tf.range(1, dim + 1, dtype=tf.int64), tf.uint64) * _uint64(_GOLDEN_GAMMA)
    bits = _mix64(row_hash[:, tf.newaxis] + columns)
    high = tf.bitcast(tf.bitwise.right_shift(bits, _uint64(32)), tf.int64)
    return (tf.cast(high, tf.float64) + 0.5) * 2.0**-32


def _polynomial(coefficients: tuple[float, ...], x: tf.Tensor) -> tf.Tensor:
    value = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def _log(x: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm as the native store computes it; `tf.math.log` rounds differently."""
    one, sqrt_half, fraction = 0x3FF0000000000000, 0x3FE6A09E667F3BCD, 0x000FFFFFFFFFFFFF
    bits = tf.bitcast(x, tf.int64) + tf.constant(one - sqrt_half, tf.int64)
    exponent = tf.bitwise.right_shift(bits, tf.constant(52, tf.int64)) - 1023
    bits = tf.bitwise.bitwise_and(bits, tf.constant(fraction, tf.int64)) + sqrt_half
    m = tf.bitcast(bits, tf.float64)
    s = (m - 1.0) / (m + 1.0)
    series = _polynomial((1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0), s * s)
    return 2.0 * s * series + tf.cast(exponent, tf.float64) * _LN_2


def _normal_quantile(u: tf.Tensor) -> tf.Tensor:
    q = u - 0.5
    r = 0.180625 - q * q
    t = tf.sqrt(-_log(tf.minimum(u, 1.0 - u))) - 1.6
    central = tf.abs(q) <= 0.425
    tail = _polynomial(_TAIL_NUMERATOR, t)
    numerator = tf.where(
        central, q * _polynomial(_CENTRAL_NUMERATOR, r), tf.where(q < 0.0, -tail, tail)
    )
    denominator = tf.where(
        central, _polynomial(_CENTRAL_DENOMINATOR, r), _polynomial(_TAIL_DENOMINATOR, t)
    )
    return numerator / denominator
