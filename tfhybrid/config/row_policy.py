"""Row policy of a table: admission of new keys, and eviction of rows.

Both depend only on keys, steps and event time. So all replicas, a resumed job, and a job with
another number of ranks admit and evict the same keys.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any

from tfhybrid._deprecated import renamed_fields
from tfhybrid.errors import ConfigError

# Default of `every_steps`, unless a rule needs a smaller one.
_DEFAULT_STEPS = 1024
# Fewer rows per slice would make the numbers of rows in slices differ too much.
_SLICE_ROWS = 64
_MAX_STEPS = 2**31 - 1
_MAX_EVERY = 2**20
_ROWS = 1  # tfhybrid::PolicyKind::kRows


@dataclasses.dataclass(frozen=True)
class Admission:
    """Rule that gives a key its row in its n-th update.

    Until then the key reads its initial value in training, and what `TableConfig.unseen` says
    outside of it. A waiting key takes about 60 bytes, for an exact counter and its index entry. No
    key is admitted too soon.

    Args:
        updates: Number of updates, over all ranks, in which a key must occur. At least 1, which
            admits every key at once. The last of these updates is applied to the new row.
        forget_after: Number of updates without a waiting key after which its counter is removed,
            within `Eviction(every_steps=)` further updates. The key is counted from 0 when it
            occurs again. `None` (default) keeps a counter for every key that ever occurred.

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


@renamed_fields(every="every_steps")
@dataclasses.dataclass(frozen=True)
class Eviction:
    """Rules that remove rows. A row is removed if one of them applies; its space is reused.

    A key that occurs again after its eviction starts like a new key: it waits for admission, and
    gets its initial value and fresh optimizer state.

    Each update examines one in `every_steps` keys, chosen by hash, so that no step has to scan the
    table. A key is therefore removed up to `every_steps` updates after a rule applies to it. It
    stays if it occurs in that very update.

    Args:
        unseen_steps: Number of updates. Evicts keys that occurred in none of the last ones.
        unseen_time: Event time, in the unit of the `layers.EventClock` of
            `DistributedOptimizer(event_clock=)`. Evicts keys that were in no update for so long.
        min_frequency: Lowest frequency of a key that stays. The frequency is the number of updates
            in which the key occurred, halved at each multiple of `half_life` updates. With 0.5, a
            key that occurred once stays for one to two half-lives, and one that occurred a thousand
            times for ten more.
        half_life: Number of updates; see `min_frequency`. `None` (default) counts all updates in
            full.
        min_norm: Lowest Euclidean norm of an embedding that stays.
        max_rows: Number of rows to keep. Each slice of the table is examined in turn, against its
            fraction of this number. So a table can exceed it by the rows added since then: at most
            the new keys of `every_steps` updates.
        keep: Rows that `max_rows` keeps: the `"recent"` (default) or the `"frequent"`.
        every_steps: Number of updates in which each key is examined once, a power of two up to
            2^20. Defaults to 1024, or less if a rule's number of steps or rows is small.

    Raises:
        ConfigError: An argument is out of range; no rule is given; `half_life` is given without
            `min_frequency` and without `keep="frequent"`; or `max_rows` is below `every_steps`.

    Sources: eviction by step, time and norm in DeepRec and Monolith; by recency and frequency in
    HugeCTR's HKV; decaying frequencies in Paddle ("show decay").

    Example:

    >>> import tfhybrid
    >>> eviction = tfhybrid.Eviction(unseen_steps=500_000, max_rows=50_000_000)
    >>> eviction.every_steps
    1024
    """

    unseen_steps: int | None = None
    unseen_time: int | None = None
    min_frequency: float | None = None
    half_life: int | None = None
    min_norm: float | None = None
    max_rows: int | None = None
    keep: str = "recent"
    every_steps: int | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.keep not in ("recent", "frequent"):
            raise ConfigError(f"keep must be 'recent' or 'frequent'. Received: keep={self.keep!r}")
        if not any(getattr(self, rule) is not None for rule in _RULES):
            raise ConfigError(f"An eviction needs one of the rules {_RULES}. Received: {self!r}")
        by_frequency = self.min_frequency is not None or self.keep == "frequent"
        if self.half_life is not None and not by_frequency:
            raise ConfigError(
                "half_life needs min_frequency or keep='frequent'. "
                f"Received: half_life={self.half_life!r} without them"
            )
        if self.every_steps is None:
            object.__setattr__(self, "every_steps", _default_interval(self))
        elif self.every_steps & (self.every_steps - 1):
            raise ConfigError(
                f"every_steps must be a power of two. Received: every_steps={self.every_steps!r}"
            )
        if self.max_rows is not None and self.max_rows < self.slices:
            raise ConfigError(
                "max_rows is divided among the slices of a table, one for each of `every_steps` "
                f"updates; it must be at least their number. Received: max_rows={self.max_rows!r}, "
                f"every_steps={self.every_steps!r}"
            )

    def _check_numbers(self) -> None:
        for name, most in _COUNTS.items():
            if getattr(self, name) is not None:
                _want_count(name, getattr(self, name), most)
        for name in ("min_frequency", "min_norm"):
            if getattr(self, name) is not None:
                _want_positive(name, getattr(self, name))

    @property
    def slices(self) -> int:
        """Number of slices of a table. Each update evicts from one slice, in turn.

        Equals `every_steps`: after so many updates, every row was examined once.
        """
        assert self.every_steps is not None
        return self.every_steps


_COUNTS = {
    "unseen_steps": _MAX_STEPS,
    "unseen_time": 2**62,
    "half_life": 2**62,
    "max_rows": 2**40,
    "every_steps": _MAX_EVERY,
}
_RULES = ("unseen_steps", "unseen_time", "min_frequency", "min_norm", "max_rows")


def native_policy(admission: Admission | None, eviction: Eviction | None) -> dict[str, Any]:
    """Returns the fields of `native.RowPolicyStruct` that are not 0; empty without a policy.

    An admission after one update counts as none.

    Args:
        admission: Rule by which keys get a row; `None` for every key.
        eviction: Rules by which rows are removed; `None` for never.
    """
    if admission is not None and admission.updates == 1:
        admission = None
    if admission is None and eviction is None:
        return {}
    fields: dict[str, Any] = {"kind": _ROWS}
    slices = _interval_within(admission.forget_after) if admission is not None else _DEFAULT_STEPS
    if eviction is not None:
        slices = eviction.slices
        for name in (*_RULES, "half_life"):
            fields[name] = getattr(eviction, name) or 0
        fields["frequent_stay"] = int(eviction.keep == "frequent")
    if admission is not None:
        fields["admission"] = admission.updates
        fields["waiting_steps"] = admission.forget_after or 0
    return fields | {"slices_log2": slices.bit_length() - 1}


def _default_interval(eviction: Eviction) -> int:
    """Returns the default of `every_steps`: no rule is late by much more than its value."""
    steps = [steps for steps in (eviction.unseen_steps, eviction.half_life) if steps is not None]
    most = min([_DEFAULT_STEPS, *map(_interval_within, steps)])
    if eviction.max_rows is not None:
        most = min(most, max(1, eviction.max_rows // _SLICE_ROWS))
    return 1 << (most.bit_length() - 1)


def _interval_within(steps: int | None) -> int:
    most = _DEFAULT_STEPS if steps is None else min(_DEFAULT_STEPS, max(1, steps // 4))
    return 1 << (most.bit_length() - 1)


def _want_count(name: str, value: Any, most: int) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        raise ConfigError(
            f"{name} must be a whole number from 1 to {most}. Received: {name}={value!r}"
        )


def _want_positive(name: str, value: Any) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not (0 < value < math.inf):
        raise ConfigError(f"{name} must be a number above 0. Received: {name}={value!r}")
