"""Which keys have a row: admission and eviction.

All of it follows from keys, steps and event time alone, so that every replica, a resumed job and
one on another number of ranks admit and evict the same.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any

from tfhybrid.errors import ConfigError

# What a table is examined in, unless a rule wants it done sooner.
_MOST_EVERY = 1024
# A slice of fewer rows would be full at one time and half empty at another.
_SLICE_ROWS = 64
_MAX_STEPS = 2**31 - 1
_MAX_EVERY = 2**20
_ROWS = 1  # tfhybrid::PolicyKind::kRows


@dataclasses.dataclass(frozen=True)
class Admission:
    """A key gets a row in its n-th update; until then it reads its initial value.

    What is kept of a waiting key is a counter, 60 bytes or so, index included. The counter is
    exact: no key is admitted too soon.

    Args:
        updates: The number of updates, of all ranks together, in which a key must occur; at least
            1, which admits all at once. The last of them is applied.
        forget_after: A waiting key that was not seen for so many updates is forgotten, within
            `Eviction(every=)` updates, and counted from 0 when it comes again. `None` waits for
            ever: then every key that ever came has a counter.

    Raises:
        ConfigError: An argument is out of range.

    Source: the counter filter of DeepRec's embedding variables, and Monolith's.

    Example:

    >>> import tfhybrid
    >>> config = tfhybrid.TableConfig(dim=8, admission=tfhybrid.Admission(3, forget_after=100_000))
    """

    updates: int
    forget_after: int | None = None

    def __post_init__(self) -> None:
        _want_count("updates", self.updates, 2**20)
        if self.forget_after is not None:
            _want_count("forget_after", self.forget_after, _MAX_STEPS)


@dataclasses.dataclass(frozen=True)
class Eviction:
    """Rows are removed to which one of the rules applies; their room is used again.

    A key that comes again after it was evicted begins as one that never came: with its initial
    value, fresh optimizer state, and admission before that.

    Each update examines a share of the keys, one in `every`, chosen by hash, so that no step waits
    for a walk over the table. So a key goes up to `every` updates after a rule applies to it; one
    that occurs in that very update stays.

    Args:
        unseen_steps: Evicts a key that was in no update for so many updates.
        unseen_time: Evicts a key that was in no update for so much event time, in the unit of the
            `layers.EventClock` that `DistributedOptimizer(event_clock=)` is given.
        min_frequency: Evicts a key whose frequency is below that. The frequency is the number of
            updates in which the key occurred, where those before each multiple of `half_life`
            updates count half, those before two of them a quarter, and so on. With 0.5 a key that
            came once stays for one to two half-lives, and one that came a thousand times for ten
            more.
        half_life: See `min_frequency`. `None` counts all updates in full.
        min_norm: Evicts a key whose embedding has a Euclidean norm below that.
        max_rows: Number of rows to keep. Shares of the keys are examined one at a time, each with
            its share of this number; so a table has more by what came since, at most by the new
            keys of `every` updates.
        keep: Which rows `max_rows` keeps, the `"recent"` or the `"frequent"`.
        every: In how many updates each key is examined once, a power of two up to 2^20. By default
            1024, or less where a rule's number of steps or rows is small.

    Raises:
        ConfigError: An argument is out of range, or there is no rule.

    Source: DeepRec's and Monolith's eviction by step, time and norm; HugeCTR's HKV by recency and
    frequency. Frequencies that halve: Paddle's show decay.

    Example:

    >>> import tfhybrid
    >>> eviction = tfhybrid.Eviction(unseen_steps=500_000, max_rows=50_000_000)
    >>> eviction.every
    1024
    """

    unseen_steps: int | None = None
    unseen_time: int | None = None
    min_frequency: float | None = None
    half_life: int | None = None
    min_norm: float | None = None
    max_rows: int | None = None
    keep: str = "recent"
    every: int | None = None

    def __post_init__(self) -> None:
        for name, most in _COUNTS.items():
            if getattr(self, name) is not None:
                _want_count(name, getattr(self, name), most)
        for name in ("min_frequency", "min_norm"):
            if getattr(self, name) is not None:
                _want_positive(name, getattr(self, name))
        if self.keep not in ("recent", "frequent"):
            raise ConfigError(f"keep is 'recent' or 'frequent'. Received: keep={self.keep!r}")
        if not any(getattr(self, rule) is not None for rule in _RULES):
            raise ConfigError(f"An eviction has one of the rules {_RULES}. Received: {self!r}")
        by_frequency = self.min_frequency is not None or self.keep == "frequent"
        if self.half_life is not None and not by_frequency:
            raise ConfigError(
                "half_life belongs to min_frequency, and to keep='frequent'. "
                f"Received: half_life={self.half_life!r} without them"
            )
        if self.every is None:
            object.__setattr__(self, "every", _every(self))
        elif self.every & (self.every - 1):
            raise ConfigError(f"every is a power of two. Received: every={self.every!r}")
        if self.max_rows is not None and self.max_rows < self.slices:
            raise ConfigError(
                "max_rows is shared by the slices of a table, one for each of `every` updates, and "
                f"is at least their number. Received: max_rows={self.max_rows!r}, "
                f"every={self.every!r}"
            )

    @property
    def slices(self) -> int:
        """`every`, which is never `None` once the rules are complete."""
        assert self.every is not None
        return self.every


_COUNTS = {
    "unseen_steps": _MAX_STEPS,
    "unseen_time": 2**62,
    "half_life": 2**62,
    "max_rows": 2**40,
    "every": _MAX_EVERY,
}
_RULES = ("unseen_steps", "unseen_time", "min_frequency", "min_norm", "max_rows")


def native_policy(admission: Admission | None, eviction: Eviction | None) -> dict[str, Any]:
    """Returns the fields of `native.RowPolicyStruct`, those that are not 0."""
    if admission is not None and admission.updates == 1:
        admission = None
    if admission is None and eviction is None:
        return {}
    fields: dict[str, Any] = {"kind": _ROWS}
    slices = _every_of_steps(admission.forget_after) if admission is not None else _MOST_EVERY
    if eviction is not None:
        slices = eviction.slices
        for name in (*_RULES, "half_life"):
            fields[name] = getattr(eviction, name) or 0
        fields["frequent_stay"] = int(eviction.keep == "frequent")
    if admission is not None:
        fields["admission"] = admission.updates
        fields["waiting_steps"] = admission.forget_after or 0
    return fields | {"slices_log2": slices.bit_length() - 1}


def _every(eviction: Eviction) -> int:
    """The default of `every`: so that no rule is late by much more than its own number."""
    steps = [steps for steps in (eviction.unseen_steps, eviction.half_life) if steps is not None]
    most = min([_MOST_EVERY, *map(_every_of_steps, steps)])
    if eviction.max_rows is not None:
        most = min(most, max(1, eviction.max_rows // _SLICE_ROWS))
    return 1 << (most.bit_length() - 1)


def _every_of_steps(steps: int | None) -> int:
    most = _MOST_EVERY if steps is None else min(_MOST_EVERY, max(1, steps // 4))
    return 1 << (most.bit_length() - 1)


def _want_count(name: str, value: Any, most: int) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        raise ConfigError(f"{name} is a whole number from 1 to {most}. Received: {name}={value!r}")


def _want_positive(name: str, value: Any) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not (0 < value < math.inf):
        raise ConfigError(f"{name} is a number above 0. Received: {name}={value!r}")
