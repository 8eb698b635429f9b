"""Meetings: points at which every rank waits for all others (`core/engine/meetings.h`)."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_LONGEST_NAME = 100
_MOST_NAMES = 8


class Standing(ctypes.Structure):
    """`tfhybrid_standing`."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("begun", "ended", "signature", "ordinal", "waits_begun", "waits_ended")
    ]


@dataclasses.dataclass(frozen=True)
class Meeting:
    """What this rank does in a meeting.

    Args:
        what: Its kind, such as "step".
        of: The optimizer that it belongs to.
        tables: Names of the tables that have a gradient, in order.
        variables: The dense variables that have one, in order; the same text on all ranks.
        paths: Keras's names of these, which may differ between ranks.
    """

    what: str
    of: str
    tables: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @functools.cached_property
    def signature(self) -> int:
        """A hash of all but the paths, 64 bits without a sign."""
        return _hash([self.what, self.of, self.tables, self.variables])

    @functools.cached_property
    def series(self) -> int:
        """A hash of what such meetings are counted by: what and of."""
        return _hash([self.what, self.of])

    def to_json(self) -> dict[str, Any]:
        """Returns its fields; long names of tables and variables are shortened."""
        short = dataclasses.replace(self, tables=_short(self.tables), paths=_short(self.paths))
        return dataclasses.asdict(short)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Meeting:
        """Returns what `to_json` gave. Its signature is another one if a name was shortened."""
        lists = (tuple(fields[name]) for name in ("tables", "variables", "paths"))
        return cls(fields["what"], fields["of"], *lists)

    def title(self, ordinal: int) -> str:
        """Returns a text for messages, such as "step 7 of optimizer update_0 (tables 'a', 'b')".

        Args:
            ordinal: Its place in the series.
        """
        parts = [f"tables {listed(map(repr, self.tables))}"] if self.tables else []
        if self.variables:
            parts.append(f"{len(self.variables)} dense variable(s)")
        details = f" ({', '.join(parts)})" if parts else ""
        return f"{self.what} {ordinal} of optimizer {self.of}{details}"

    def beyond(self, other: Meeting) -> list[str]:
        """Returns the tables and variables that it has and another one of the series has not."""
        if self.series != other.series:
            return []
        tables = [f"table {name!r}" for name in self.tables if name not in other.tables]
        variables = [
            f"{variable} {path!r}"
            for variable, path in zip(self.variables, self.paths, strict=True)
            if variable not in other.variables
        ]
        return [*tables, *variables]


def listed(names: Iterable[str]) -> str:
    """Returns names as text; of many, the first ones and how many follow."""
    every = list(names)
    more = f" and {len(every) - _MOST_NAMES} more" if len(every) > _MOST_NAMES else ""
    return ", ".join(every[:_MOST_NAMES]) + more


def _hash(parts: object) -> int:
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _short(names: Iterable[str]) -> tuple[str, ...]:
    half = _LONGEST_NAME // 2
    return tuple(
        name if len(name) <= _LONGEST_NAME else f"{name[:half]}...{name[-half:]}" for name in names
    )
