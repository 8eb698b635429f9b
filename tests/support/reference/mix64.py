"""The hash by which keys are placed and examined."""

from __future__ import annotations


def mix64(number: int) -> int:
    """`Mix64` of `custom_ops/core/util/hash.h`; `number` is below 2^64."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)
