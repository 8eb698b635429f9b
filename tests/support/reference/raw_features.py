"""Features computed row by row in Python and NumPy, from the definitions of hashes and steps."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

KEYS = 2**63 - 1
_MASK = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_CROSS_SEED, _CROSS_FACTOR = 0xDECAFCAFFE, 0xC6A4A7935BD1E995


@functools.cache
def text_key(text: bytes, bins: int = KEYS) -> int:
    """Returns FarmHash's Fingerprint64 of a text, modulo the number of bins."""
    return fingerprint(text) % bins


def crossed(lists: Sequence[Sequence[int]], bins: int = KEYS) -> list[int]:
    """Returns the keys of the combinations of the keys of several features, in a row."""
    return [_crossed(keys) % bins for keys in itertools.product(*lists)]


def bucket(number: float, boundaries: Sequence[float]) -> int:
    """Returns the bucket of a float32, as Python compares numbers; -1 for NaN."""
    if math.isnan(number):
        return -1
    return bisect.bisect_right([float(np.float32(each)) for each in boundaries], float(number))


def logarithm(number: float) -> np.float32:
    """Returns log(1 + max(x, 0)) of a float32."""
    return np.float32(number if math.isnan(number) else math.log1p(max(float(number), 0.0)))


def normalized(numbers: np.ndarray, mean: float, variance: float) -> np.ndarray:
    """Returns float32 numbers without a mean and divided by the standard deviation."""
    deviation = np.sqrt(np.float32(variance))
    return ((numbers - np.float32(mean)) / deviation).astype(np.float32)


def ulps_between(first: np.ndarray, second: np.ndarray) -> int:
    """Returns the largest distance of two lists of float32, in steps of the last bit."""
    sides = [np.asarray(each, np.float32).ravel() for each in (first, second)]
    nans = [np.isnan(each) for each in sides]
    assert (nans[0] == nans[1]).all()
    bits = [
        each[~nan].view(np.int32).astype(np.int64) for each, nan in zip(sides, nans, strict=True)
    ]
    places = [np.where(each < 0, -(each & 0x7FFFFFFF), each) for each in bits]
    return int(np.abs(places[0] - places[1]).max(initial=0))


def _crossed(keys: Sequence[int]) -> int:
    hashed = _CROSS_SEED
    for key in keys:
        result = hashed ^ _CROSS_FACTOR
        result ^= _mixed(((key & _MASK) * _CROSS_FACTOR) & _MASK) * _CROSS_FACTOR & _MASK
        result = result * _CROSS_FACTOR & _MASK
        result = _mixed(result) * _CROSS_FACTOR & _MASK
        hashed = _mixed(result)
    return hashed


def _mixed(value: int) -> int:
    return value ^ (value >> 47)


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return ((value >> by) | (value << (64 - by))) & _MASK


def fingerprint(text: bytes) -> int:
    """Returns Fingerprint64 of FarmHash, which is its `farmhashna::Hash64`."""
    size = len(text)
    if size <= 16:
        return _up_to_16(text)
    if size <= 32:
        return _up_to_32(text)
    return _up_to_64(text) if size <= 64 else _longer(text)


def _word(text: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(text[at : at + size], "little")


def _of_two(first: int, second: int, factor: int) -> int:
    a = ((first ^ second) & _MASK) * factor & _MASK
    a ^= a >> 47
    b = ((second & _MASK) ^ a) * factor & _MASK
    b ^= b >> 47
    return b * factor & _MASK


def _up_to_16(text: bytes) -> int:
    size = len(text)
    factor = (_K2 + size * 2) & _MASK
    if size >= 8:
        a = (_word(text, 0) + _K2) & _MASK
        b = _word(text, size - 8)
        c = _rotated(b, 37) * factor + a
        d = (_rotated(a, 25) + b) * factor
        return _of_two(c, d, factor)
    if size >= 4:
        return _of_two(size + (_word(text, 0, 4) << 3), _word(text, size - 4, 4), factor)
    if size:
        y = text[0] + (text[size >> 1] << 8)
        z = size + (text[-1] << 2)
        return _mixed((y * _K2 & _MASK) ^ (z * _K0 & _MASK)) * _K2 & _MASK
    return _K2


def _up_to_32(text: bytes) -> int:
    size = len(text)
    factor = (_K2 + size * 2) & _MASK
    a, b = _word(text, 0) * _K1, _word(text, 8)
    c, d = _word(text, size - 8) * factor, _word(text, size - 16) * _K2
    first = _rotated(a + b, 43) + _rotated(c, 30) + d
    return _of_two(first, a + _rotated(b + _K2, 18) + c, factor)


def _up_to_64(text: bytes) -> int:
    size = len(text)
    factor = (_K2 + size * 2) & _MASK
    a, b = _word(text, 0) * _K2, _word(text, 8)
    c, d = _word(text, size - 8) * factor, _word(text, size - 16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _of_two(y, a + _rotated(b + _K2, 18) + c, factor)
    e, f = _word(text, 16) * factor, _word(text, 24)
    g = (y + _word(text, size - 32)) * factor
    h = (z + _word(text, size - 24)) * factor
    return _of_two(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, factor)


def _of_32(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(text, at + 8 * i) for i in range(4))
    a += w
    b = _rotated(b + a + z, 21)
    total = a + x + y
    return (total + z) & _MASK, (b + _rotated(total, 44) + a) & _MASK


def _longer(text: bytes) -> int:
    x, y = 81, 81 * _K1 + 113
    z = _mixed((y * _K2 + 113) & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _word(text, 0)
    last = (len(text) - 1) & 63
    for at in range(0, (len(text) - 1) // 64 * 64, 64):
        x, y, z, v, w = _round(text, at, (x, y, z, v, w), (_K1, 1))
    factor = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + last, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x, y, z, v, w = _round(text, len(text) - 64, (x, y, z, v, w), (factor, 9))
    first = _of_two(v[0], w[0], factor) + _mixed(y & _MASK) * _K0 + z
    return _of_two(first, _of_two(v[1], w[1], factor) + x, factor)


def _round(text: bytes, at: int, state: tuple, factors: tuple[int, int]) -> tuple:
    """Mixes 64 bytes into the state."""
    x, y, z, v, w = state
    factor, weight = factors
    x = _rotated(x + y + v[0] + _word(text, at + 8), 37) * factor
    y = _rotated(y + v[1] + _word(text, at + 48), 42) * factor
    x = (x ^ (w[1] * weight)) & _MASK
    y = (y + v[0] * weight + _word(text, at + 40)) & _MASK
    z = _rotated(z + w[0], 33) * factor & _MASK
    v = _of_32(text, at, v[1] * factor, x + w[0])
    w = _of_32(text, at + 32, z + w[1], y + _word(text, at + 16))
    return z, y, x, v, w
