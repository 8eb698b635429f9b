"""Reads batches ahead and announces their keys as passes before they are used."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.passes import BatchKeys, Pass
from tfhybrid.errors import ConfigError


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
    ) -> Iterator[Any]:
        """Yields elements after announcing their keys.

        Args:
            elements: The batches.
            keys_of: Returns the keys that a batch looks up.
            engine: This rank's engine.

        Raises:
            ConfigError: A single batch needs more than `most_bytes`.
        """
        groups = _Groups(self, iter(elements), keys_of, engine)
        window: collections.deque[_Group] = collections.deque()
        try:
            while True:
                while len(window) <= self.ahead and groups.has_next(window):
                    window.append(groups.announce())
                if not window:
                    return
                for batch, element in enumerate(window[0].elements):
                    window[0].begin(batch)
                    yield element
                window.popleft().end()
        finally:
            for group in window:
                group.end()


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
        self._left: list[tuple[Any, BatchKeys]] = []  # an element that did not fit into a pass

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
            found = self._left.pop() if self._left else self._read()
            if found is None:
                break
            if most is not None:
                size = passes.weigh(self._engine, [*group.keys, found[1]])
                if size > most and group.elements:
                    self._left.append(found)
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
