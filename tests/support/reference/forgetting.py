"""Admission and eviction told plainly: every update of every key is remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tests.support.reference import training
from tests.support.reference.mix64 import mix64
from tfhybrid import Eviction


@dataclasses.dataclass
class Past:
    """The steps of a key's updates, and the event time of the last."""

    steps: list[int]
    time: int


class Table(training.Table):
    """A table whose keys wait for admission, and whose rows are evicted.

    Args:
        *arguments: Of `training.Table`; the policy is that of the config.
        **options: Likewise.
    """

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        config = arguments[1]
        self.clock = 0
        self.waiting: dict[int, Past] = {}
        self._past: dict[int, Past] = {}
        self._admission = config.admission
        self._eviction = config.eviction
        self._slices = 1 << config.policy["slices_log2"]

    def update(self, gradients: Mapping[int, np.ndarray]) -> None:
        """Applies the gradients of the keys that have a row or get one, then evicts."""
        now = self.step + 1
        super().update({key: g for key, g in gradients.items() if self._counts(key, now)})
        examined = [key for key in self.rows if _hash(key) % self._slices == now % self._slices]
        for key in self._evicted(examined, now):
            for part in (self.rows, self._states, self._past):
                del part[key]
        self._forget_waiting(now)

    def _counts(self, key: int, now: int) -> bool:
        """Counts an update; returns whether the key has a row for it."""
        if key in self._past:
            self._past[key].steps.append(now)
        else:
            past = self.waiting.setdefault(key, Past([], self.clock))
            past.steps.append(now)
            needed = 1 if self._admission is None else self._admission.updates
            if len(past.steps) < needed:
                return False
            del self.waiting[key]
            self._past[key] = Past([now] * needed, self.clock)
        self._past[key].time = self.clock
        return True

    def _evicted(self, examined: list[int], now: int) -> list[int]:
        rules = self._eviction
        if rules is None:
            return []
        old = [key for key in examined if self._past[key].steps[-1] < now]
        evicted = [key for key in old if self._expired(key, rules, now)]
        if rules.max_rows is None:
            return evicted
        staying = sorted(set(examined) - set(evicted), key=lambda key: self._rank(key, rules, now))
        surplus = staying[: max(0, len(staying) - rules.max_rows // self._slices)]
        return evicted + [key for key in surplus if key in old]

    def _expired(self, key: int, rules: Eviction, now: int) -> bool:
        past = self._past[key]
        reasons = [
            rules.unseen_steps is not None and now - past.steps[-1] >= rules.unseen_steps,
            rules.unseen_time is not None and self.clock - past.time >= rules.unseen_time,
            rules.min_frequency is not None and self._frequency(key, now) < rules.min_frequency,
            rules.min_norm is not None and np.linalg.norm(self.rows[key]) < rules.min_norm,
        ]
        return any(reasons)

    def _frequency(self, key: int, now: int) -> float:
        half_life = self._eviction.half_life or 2**62
        return sum(0.5 ** (now // half_life - step // half_life) for step in self._past[key].steps)

    def _rank(self, key: int, rules: Eviction, now: int) -> tuple[float, float, int]:
        """Which go first."""
        recent, frequent = self._past[key].steps[-1], self._frequency(key, now)
        order = (recent, frequent) if rules.keep == "recent" else (frequent, recent)
        return (*order, _hash(key))

    def _forget_waiting(self, now: int) -> None:
        if self._admission is None or self._admission.forget_after is None:
            return
        for key, past in list(self.waiting.items()):
            examined = _hash(key) % self._slices == now % self._slices
            if examined and now - past.steps[-1] >= self._admission.forget_after:
                del self.waiting[key]


def _hash(key: int) -> int:
    return mix64(key % 2**64)
