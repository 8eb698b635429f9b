"""Reading ahead of the training: the keys of batches are announced as passes before their use."""

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
    """The part of an optimizer that makes one update per pass (`update="pass"`)."""

    @property
    def longest(self) -> int:
        """Maximum number of batches in a pass."""

    @property
    def trained(self) -> int:
        """Number of batches that were trained."""

    @property
    def waiting(self) -> int:
        """Number of trained batches whose update was not made yet."""

    def offer(self, batches: int) -> None:
        """Declares that a batch is trained next.

        Args:
            batches: Number of announced batches, including this one; 0 at the end of the data.
        """


@dataclasses.dataclass(frozen=True)
class Lookahead:
    """Limits of reading ahead: the number of batches, and the memory of their rows.

    Args:
        length: Maximum number of batches in a pass.
        ahead: Number of passes to announce in addition to the one in use. Default 1.
        refuses: Whether the lookup of a key that was not announced is an error. Default false.
        max_bytes: Maximum number of bytes of all announced passes of this rank; `None` (default)
            for no maximum.
    """

    length: int
    ahead: int = 1
    refuses: bool = False
    max_bytes: int | None = None

    def over(
        self,
        elements: Iterable[Any],
        keys_of: Callable[[Any], BatchKeys],
        engine: Engine,
        boundary: Boundary | None = None,
    ) -> Generator[Any, None, None]:
        """Yields batches after announcing the keys of those ahead.

        Args:
            elements: Iterable of batches.
            keys_of: Function that returns the keys of a batch.
            engine: Engine of this rank.
            boundary: Boundary of the optimizer that trains the batches, if it makes one update per
                pass. Default: none.

        Raises:
            ConfigError: One batch needs more than `max_bytes`, or a batch is not trained when it
                is yielded.
            UnsupportedError: Embedding nodes own the tables.
            StoreError: Shared memory is full, or the job has ended.
        """
        groups = _Groups(self, iter(elements), keys_of, engine)
        in_step = None if boundary is None else _InStep(boundary, max(self.length, self.ahead))
        window: collections.deque[_PassGroup] = collections.deque()
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


def _through(
    window: Sequence[_PassGroup], groups: _Groups, in_step: _InStep | None
) -> Iterator[Any]:
    """Yields the elements of the first announced group."""
    first, *others = window
    behind = sum(len(group.elements) for group in others)
    for batch, element in enumerate(first.elements):
        if in_step is not None:
            # Another rank has ended the pass. If there was no room to announce another group, the
            # rest of this one becomes the start of the next pass, which takes as much as fits.
            if batch > 0 and not others and groups.waits and in_step.is_between_passes:
                groups.put_back(first, batch)
                return
            in_step.begin(len(first.elements) - batch + behind)
        first.begin(batch)
        yield element


class _InStep:
    """Keeps the updates of an optimizer in step with the batches that are yielded to it.

    Args:
        boundary: Boundary of the optimizer.
        longest: Maximum number of batches in a pass.
    """

    def __init__(self, boundary: Boundary, longest: int) -> None:
        self._boundary = boundary
        self._longest = longest
        self._before = boundary.trained
        self._begun = 0

    @property
    def is_between_passes(self) -> bool:
        """Whether batches were trained, and all of them have had their update."""
        return self._boundary.trained > self._before and self._boundary.waiting == 0

    def begin(self, standing: int) -> None:
        """Begins a batch.

        Args:
            standing: Number of announced batches, including this one.

        Raises:
            ConfigError: A batch before it was not trained.
        """
        self._check()
        self._boundary.offer(min(standing, self._longest))
        self._begun += 1

    def end(self) -> None:
        """Ends the data.

        Raises:
            ConfigError: The last batch was not trained.
        """
        self._check()
        self._boundary.offer(0)

    def _check(self) -> None:
        # An evaluation begins batches, but trains none.
        trained = self._boundary.trained - self._before
        if trained not in (0, self._begun):
            raise ConfigError(
                "With an optimizer, each batch of announce() must be trained once before the next "
                "one is fetched: announce() comes last, after prefetch(), and steps_per_execution "
                f"must be 1. Received: {self._begun} batches begun and {trained} trained"
            )


@dataclasses.dataclass
class _PassGroup:
    """The elements of a pass, and the pass itself after it was announced."""

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
        self._next: _PassGroup | None = None  # read, but not announced
        # Elements that are read, but in no group yet, with their keys.
        self._left: collections.deque[tuple[Any, BatchKeys]] = collections.deque()

    @property
    def waits(self) -> bool:
        """Whether a group was read that is not announced, because there was no room for it."""
        return self._next is not None

    def put_back(self, group: _PassGroup, batch: int) -> None:
        """Makes the elements of a group, starting with number `batch`, the next ones to read."""
        for source, first in ((self._next, 0), (group, batch)):
            if source is not None:
                rest = zip(source.elements[first:], source.keys[first:], strict=True)
                self._left.extendleft(reversed(list(rest)))
        self._next = None

    def has_next(self, standing: Iterable[_PassGroup]) -> bool:
        """Returns whether another pass can be announced now; reads its batches if necessary.

        It and the `standing` groups, announced and not ended, must fit in `Lookahead.max_bytes`.
        """
        self._next = self._next or self._gather()
        if self._next is None or self._limits.max_bytes is None:
            return self._next is not None
        taken = sum(group.size for group in standing)
        return self._next.size + taken <= self._limits.max_bytes

    def announce(self) -> _PassGroup:
        """Announces the pass that `has_next` found."""
        group, self._next = self._next, None
        assert group is not None
        if any(group.keys):
            group.announced = passes.announce(
                self._engine, group.keys, refuses=self._limits.refuses
            )
        return group

    def _gather(self) -> _PassGroup | None:
        group = _PassGroup([], [])
        most = self._limits.max_bytes
        while len(group.elements) < self._limits.length:
            batch = self._left.popleft() if self._left else self._read()
            if batch is None:
                break
            if most is not None:
                size = passes.weigh(self._engine, [*group.keys, batch[1]])
                if size > most and group.elements:
                    self._left.appendleft(batch)
                    break
                if size > most:
                    raise ConfigError(
                        f"A rank's part of fast_tier_bytes is {most} bytes; a batch needs more. "
                        f"Increase fast_tier_bytes. Received: a batch of {size} bytes"
                    )
                group.size = size
            group.elements.append(batch[0])
            group.keys.append(batch[1])
        return group if group.elements else None

    def _read(self) -> tuple[Any, BatchKeys] | None:
        for element in self._elements:
            return element, self._keys_of(element)
        return None
