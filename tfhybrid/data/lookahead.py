"""Reads batches ahead and announces their keys as passes before they are used."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.passes import BatchKeys, Pass
from tfhybrid.errors import ConfigError


class Boundary(Protocol):
    """What an optimizer tells of its updates, each of which is of a pass (`update="pass"`)."""

    @property
    def longest(self) -> int:
        """Most batches of a pass."""

    @property
    def trained(self) -> int:
        """Batches that were trained."""

    @property
    def waiting(self) -> int:
        """Those of them that wait for their update."""

    def offer(self, batches: int) -> None:
        """Says that a batch is about to be trained, and how many stand announced from it on."""


@dataclasses.dataclass(frozen=True)
class Lookahead:
    """How far to look ahead, and how much memory passes may take.

    Args:
        length: Number of batches in a pass.
        ahead: Number of passes announced beside the one in use.
        refuses: Whether a key that was not announced is an error.
        most_bytes: Limit for all existing passes of this rank; `None` for no limit.
    """

    length: int
    ahead: int = 1
    refuses: bool = False
    most_bytes: int | None = None

    def over(
        self,
        elements: Iterable[Any],
        keys_of: Callable[[Any], BatchKeys],
        engine: Engine,
        boundary: Boundary | None = None,
    ) -> Generator[Any, None, None]:
        """Yields elements, whose rows were announced.

        Args:
            elements: Of which each is a batch.
            keys_of: Tells what one looks up.
            engine: Of this rank.
            boundary: Where an update is of a pass: of the optimizer that trains the elements.

        Raises:
            ConfigError: A batch alone needs more than `most_bytes`, or the optimizer does not train
                each batch when it is yielded.
        """
        groups = _Groups(self, iter(elements), keys_of, engine)
        in_step = None if boundary is None else _InStep(boundary, max(self.length, self.ahead))
        window: collections.deque[_Group] = collections.deque()
        try:
            while True:
                while len(window) <= self.ahead and groups.has_next(window):
                    window.append(groups.announce())
                if not window:
                    break
                yield from _through(window, groups, in_step)
                window.popleft().end()
        finally:
            for group in window:
                group.end()
        if in_step is not None:
            in_step.end()


def _through(window: Sequence[_Group], groups: _Groups, in_step: _InStep | None) -> Iterator[Any]:
    """Yields the elements of the first group of those that stand announced."""
    first, *others = window
    behind = sum(len(group.elements) for group in others)
    for batch, element in enumerate(first.elements):
        if in_step is not None:
            # Another rank has ended the pass: if no group behind this one has found room, the next
            # pass begins with what is left of it, and takes as much more as fits.
            if batch > 0 and not others and groups.waits and in_step.is_between_passes:
                groups.put_back(first, batch)
                return
            in_step.begin(len(first.elements) - batch + behind)
        first.begin(batch)
        yield element


class _InStep:
    """Keeps an optimizer's updates and the batches that it is given in step.

    Args:
        boundary: Of the optimizer.
        longest: Batches of a pass, at most.
    """

    def __init__(self, boundary: Boundary, longest: int) -> None:
        self._boundary = boundary
        self._longest = longest
        self._before = boundary.trained
        self._begun = 0

    @property
    def is_between_passes(self) -> bool:
        """Whether the batches begun so far were trained, and their update was made."""
        return self._boundary.trained > self._before and self._boundary.waiting == 0

    def begin(self, standing: int) -> None:
        """Begins a batch.

        Args:
            standing: Batches that stand announced, this one included.
        """
        self._check()
        self._boundary.offer(min(standing, self._longest))
        self._begun += 1

    def end(self) -> None:
        """Ends the data."""
        self._check()
        self._boundary.offer(0)

    def _check(self) -> None:
        # None in an evaluation, which begins batches too.
        trained = self._boundary.trained - self._before
        if trained not in (0, self._begun):
            raise ConfigError(
                "With an optimizer, each batch of announce() is trained once, before the next one "
                "is fetched: announce() comes last, behind prefetch(), and steps_per_execution is "
                f"1. Received: {self._begun} batches begun and {trained} trained"
            )


@dataclasses.dataclass
class _Group:
    """The elements of a pass, and the pass once it is announced."""

    elements: list[Any]
    keys: list[BatchKeys]
    size: int = 0  # bytes
    announced: Pass | None = None

    def begin(self, batch: int) -> None:
        if self.announced is not None:
            self.announced.begin(batch)

    def end(self) -> None:
        if self.announced is not None:
            self.announced.end()


class _Groups:
    """Divides elements into passes."""

    def __init__(
        self,
        limits: Lookahead,
        elements: Iterator[Any],
        keys_of: Callable[[Any], BatchKeys],
        engine: Engine,
    ) -> None:
        self._limits = limits
        self._elements = elements
        self._keys_of = keys_of
        self._engine = engine
        self._next: _Group | None = None  # read, but not announced
        # Elements that are read, but in no group.
        self._left: collections.deque[tuple[Any, BatchKeys]] = collections.deque()

    @property
    def waits(self) -> bool:
        """Whether a group was read and is not announced: there was no room for it."""
        return self._next is not None

    def put_back(self, group: _Group, batch: int) -> None:
        """Takes the elements of a group from a batch on out of it; they are the next ones."""
        for source, first in ((self._next, 0), (group, batch)):
            if source is not None:
                rest = zip(source.elements[first:], source.keys[first:], strict=True)
                self._left.extendleft(reversed(list(rest)))
        self._next = None

    def has_next(self, standing: Iterable[_Group]) -> bool:
        """Returns whether there is another pass, and space for it beside the existing ones."""
        self._next = self._next or self._gather()
        if self._next is None or self._limits.most_bytes is None:
            return self._next is not None
        taken = sum(group.size for group in standing)
        return self._next.size + taken <= self._limits.most_bytes

    def announce(self) -> _Group:
        """Announces the pass that `has_next` found."""
        group, self._next = self._next, None
        assert group is not None
        if any(group.keys):
            group.announced = passes.announce(
                self._engine, group.keys, refuses=self._limits.refuses
            )
        return group

    def _gather(self) -> _Group | None:
        group = _Group([], [])
        most = self._limits.most_bytes
        while len(group.elements) < self._limits.length:
            found = self._left.popleft() if self._left else self._read()
            if found is None:
                break
            if most is not None:
                size = passes.weigh(self._engine, [*group.keys, found[1]])
                if size > most and group.elements:
                    self._left.appendleft(found)
                    break
                if size > most:
                    raise ConfigError(
                        f"A rank's part of fast_tier_bytes is {most} bytes; a batch needs more. "
                        f"Received: a batch of {size} bytes"
                    )
                group.size = size
            group.elements.append(found[0])
            group.keys.append(found[1])
        return group if group.elements else None

    def _read(self) -> tuple[Any, BatchKeys] | None:
        for element in self._elements:
            return element, self._keys_of(element)
        return None
