"""Counter-based random numbers: each one is a pure function of its seed and its counter."""

from __future__ import annotations

import functools

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


@functools.cache
def stream_seed(seed: int, *words: str) -> int:
    """Returns the seed of a random stream, an unsigned 64-bit number.

    Args:
        seed: Seed of all streams.
        *words: Name of the stream. Streams of different names are independent of each other.
    """
    for word in words:
        data = word.encode()
        for begin in range(0, len(data), 8):
            seed = _mix_int(seed ^ int.from_bytes(data[begin : begin + 8], "little"))
        seed = _mix_int(seed + len(data))
    return seed


def hash_counters(seed: int, counters: np.ndarray) -> np.ndarray:
    """Returns the splitmix64 outputs of a stream at these counters, uint64 of the same shape.

    Args:
        seed: Seed of the stream (see `stream_seed`).
        counters: Integers of any shape.
    """
    values = counters.astype(np.uint64)
    values *= np.uint64(_GOLDEN)
    values += np.uint64((seed + _GOLDEN) & _MASK)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def uniforms(seed: int, counters: np.ndarray) -> np.ndarray:
    """Returns float64 in [0, 1) with 53 random bits each, of the same shape as `counters`.

    Args:
        seed: Seed of the stream (see `stream_seed`).
        counters: Counters, int64 of any shape; equal counters give equal numbers.
    """
    return (hash_counters(seed, counters) >> np.uint64(11)) * 2.0**-53


def factors(seed: int, counters: np.ndarray, count: int) -> np.ndarray:
    """Returns float32 `[n, count]` of mean 0 and variance 1, uniform on 65,536 values.

    Args:
        seed: Seed of the stream (see `stream_seed`).
        counters: Counters, int64 `[n]`.
        count: Number of factors per counter, a multiple of 4: one hash makes four.
    """
    columns = np.arange(count // 4, dtype=np.uint64)
    wide = counters.astype(np.uint64)[:, np.newaxis] * np.uint64(count // 4) + columns
    lanes = hash_counters(seed, wide).view(np.int16)
    values = lanes.astype(np.float32)
    values += np.float32(0.5)
    values *= np.float32(np.sqrt(3) / 2**15)
    return values


def _mix_int(value: int) -> int:
    return int(hash_counters(value & _MASK, np.zeros(1, np.uint64))[0])
