"""Meetings: points at which every rank waits for all others (`core/engine/meetings.h`)."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_NAME = 100
_MAX_NAMES = 8


class MeetingProgress(ctypes.Structure):
    """A rank's progress through meetings, the C struct `tfhybrid_meeting_progress`."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("begun", "ended", "signature", "ordinal", "waits_begun", "waits_ended")
    ]


@dataclasses.dataclass(frozen=True)
class Meeting:
    """This rank's part in a meeting: a point, such as a step, where all ranks wait for each other.

    Args:
        what: Kind of meeting, such as "step".
        of: Name of the optimizer that holds the meeting.
        tables: Names of the tables that have a gradient, in order.
        variables: Dense variables that have a gradient, in order; the same text on all ranks.
        paths: Keras's names of these variables, which may differ between ranks.
    """

    what: str
    of: str
    tables: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @functools.cached_property
    def signature(self) -> int:
        """Hash of everything but the paths, an unsigned 64-bit number."""
        return _hash([self.what, self.of, self.tables, self.variables])

    @functools.cached_property
    def series(self) -> int:
        """Hash of the kind and the optimizer, unsigned 64-bit; equal for meetings of one series.

        The meetings of a series, such as the steps of one optimizer, are counted together.
        """
        return _hash([self.what, self.of])

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON; long names of tables and variables are shortened."""
        short = dataclasses.replace(
            self, tables=shortened(self.tables), paths=shortened(self.paths)
        )
        return dataclasses.asdict(short)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Meeting:
        """Returns the meeting of `to_json`'s fields. A shortened name changes its signature.

        Args:
            fields: Result of `to_json`.

        Raises:
            KeyError: A field is missing.
        """
        lists = (tuple(fields[name]) for name in ("tables", "variables", "paths"))
        return cls(fields["what"], fields["of"], *lists)

    def title(self, ordinal: int) -> str:
        """Returns a text for messages, such as "step 7 of optimizer update_0 (tables 'a', 'b')".

        Args:
            ordinal: Number of the meeting in its series.
        """
        parts = [f"tables {listed(map(repr, self.tables))}"] if self.tables else []
        if self.variables:
            parts.append(f"{len(self.variables)} dense variable(s)")
        details = f" ({', '.join(parts)})" if parts else ""
        return f"{self.what} {ordinal} of optimizer {self.of}{details}"

    def beyond(self, other: Meeting) -> list[str]:
        """Returns the tables and variables that another meeting lacks; none for another series.

        Args:
            other: Part of another rank in the same meeting.
        """
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
    """Returns names as text, "a, b and 7 more": the first ones, and the number of the rest."""
    every = list(names)
    more = f" and {len(every) - _MAX_NAMES} more" if len(every) > _MAX_NAMES else ""
    return ", ".join(every[:_MAX_NAMES]) + more


def _hash(parts: object) -> int:
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def shortened(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names with at most about 100 characters each: their beginnings and ends."""
    half = _MAX_NAME // 2
    return tuple(
        name if len(name) <= _MAX_NAME else f"{name[:half]}...{name[-half:]}" for name in names
    )
