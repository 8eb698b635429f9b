"""The data to which a position belongs, and the steps that earlier runs made in its epoch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.core import native
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.data.samples.sharding import Steps
from tfhybrid.errors import ConfigError

_END_BYTES = 64 << 10
_READERS = 8
_MAX_CUTS = 1000


class Cut(NamedTuple):
    """Steps that one run made in an epoch, or in what other runs had left of it.

    Attributes:
        batch_size: Samples per rank and step.
        ranks: Number of ranks.
        window: Number of samples that were shuffled together; 0 if all of them.
        steps: Number of steps that the run made.
    """

    batch_size: int
    ranks: int
    window: int
    steps: int

    @property
    def samples(self) -> int:
        """Number of samples that the steps used, over all ranks."""
        return self.batch_size * self.ranks * self.steps


@dataclasses.dataclass(frozen=True)
class Origin:
    """Description of the batches whose steps a position counts.

    Args:
        batch_size: Samples per rank and step.
        ranks: Number of ranks.
        window: Number of samples that are shuffled together; 0 if all of them.
        seed: Seed of the shuffle.
        shuffle: Whether samples are shuffled.
        drop_remainder: Whether an incomplete last batch is dropped.
        samples: Number of samples in an epoch, over all ranks.
        digest: Checksum of `files`, or of the columns of a table in memory.
        files: Name, size in bytes and checksum of each file; empty for a table in memory, or if
            the list was left out.
        before: Steps that earlier runs made in the epoch with another batch size, window or number
            of ranks; oldest first.

    Raises:
        ConfigError: A field has the wrong type or is out of range.
    """

    batch_size: int
    ranks: int
    window: int
    seed: int
    shuffle: bool
    drop_remainder: bool
    samples: int
    digest: int
    files: Sequence[Sequence[Any]] = ()
    before: tuple[Cut, ...] = ()

    def __post_init__(self) -> None:
        counts = [self.batch_size, self.ranks, self.window, self.seed, self.samples, self.digest]
        counts += [each for cut in self.before for each in cut]
        plain = all(type(each) is int and each >= 0 for each in counts)
        whole = plain and all(len(each) == 3 for each in self.files)
        fits = whole and min(self.batch_size, self.ranks) > 0 and len(self.before) <= _MAX_CUTS
        if not fits or self.left_after(self.before) < 0:
            raise ConfigError(
                "A position's data must have a batch size, ranks, seed and earlier steps that fit "
                f"its samples. Received: {str(counts)[:200]}"
            )

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Origin:
        """Returns the origin that a position's `data` describes.

        Args:
            fields: JSON object that `as_json` returned.

        Raises:
            ConfigError: A field is missing, has the wrong type or is out of range.
        """
        try:
            cuts = tuple(Cut(*cut) for cut in fields.get("before", ()))
            return cls(**{**fields, "before": cuts})
        except TypeError as error:
            raise ConfigError(
                "A position's data must be what a checkpoint of tfhybrid saved. "
                f"Received: {str(fields)[:200]} ({error})"
            ) from error

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as a JSON object, for `Position.data`."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        fields |= {"files": [*map(list, self.files)], "before": [*map(list, self.before)]}
        return {name: value for name, value in fields.items() if value not in ([], ())}

    @property
    def step_form(self) -> tuple[int, int, int, bool]:
        """Batch size, ranks, window and `drop_remainder`, which make an epoch's steps."""
        return self.batch_size, self.ranks, self.window, self.drop_remainder

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of a whole epoch."""
        return self.steps_in(self.samples)

    @property
    def first_step(self) -> int:
        """Number of the first step after `before`; 0 if `before` is empty."""
        return self.steps_per_epoch - self.steps_in(self.left_after(self.before))

    def steps_in(self, samples: int) -> int:
        """Returns the number of steps in the last samples of an epoch.

        Args:
            samples: Number of samples, over all ranks.
        """
        return Steps(samples, self.batch_size, self.ranks, self.drop_remainder).count

    def left_after(self, cuts: Iterable[Cut]) -> int:
        """Returns the number of samples of an epoch that some runs have left.

        Args:
            cuts: Steps of these runs.
        """
        return self.samples - sum(cut.samples for cut in cuts)

    def cuts_until(self, step: int) -> tuple[Cut, ...]:
        """Returns the steps that all runs have made before a step.

        Args:
            step: Number of the step in the epoch, at least `first_step`.
        """
        return (
            *self.before,
            Cut(self.batch_size, self.ranks, self.window, step - self.first_step),
        )

    def order_differences(self, other: Origin) -> list[str]:
        """Returns why an epoch of other batches has other samples, or another order of them.

        Args:
            other: Batches of the run that continues.

        Returns:
            Texts with the value of this object, then of the other one; empty if the order is equal.
        """
        compared = ("seed", "shuffle", "samples") if self.shuffle else ("shuffle", "samples")
        differences = [
            f"{name} was {getattr(self, name)}, and is {getattr(other, name)}"
            for name in compared
            if getattr(self, name) != getattr(other, name)
        ]
        if self.digest != other.digest:
            differences.append(self._difference_of_files(other))
        return differences

    def _difference_of_files(self, other: Origin) -> str:
        if not self.files or not other.files:
            return f"the samples' checksum was {self.digest}, and is {other.digest}"
        mine, theirs = {n: each for n, *each in self.files}, {n: each for n, *each in other.files}
        for what, names in (("gone", mine.keys() - theirs), ("new", theirs.keys() - mine)):
            if names:
                return f"of {len(mine)} and {len(theirs)} files, {min(names)} is {what}"
        for name, each in mine.items():
            if each != theirs[name]:
                (size, checksum), (new_size, new) = each, theirs[name]
                return (
                    f"{name} had {size} bytes and the checksum {checksum}, and has {new_size} "
                    f"bytes and the checksum {new}"
                )
        return "the files have another order"


def describe_files(paths: Sequence[Path]) -> list[list[Any]]:
    """Returns the name, size and checksum of files; the checksum is of the first and last 64 KB.

    Args:
        paths: Paths of the files, of which there is at least one.

    Returns:
        For each file its name below their common folder, its size in bytes, and its CRC-32C.

    Raises:
        OSError: A file cannot be read.
    """
    absolute = [os.path.abspath(path) for path in paths]
    folder = os.path.commonpath([os.path.dirname(path) for path in absolute])
    with ThreadPoolExecutor(_READERS) as readers:
        ends = [*readers.map(_size_and_checksum, absolute)]
    names = [os.path.relpath(path, folder) for path in absolute]
    return [[name, *each] for name, each in zip(names, ends, strict=True)]


def digest_of_files(files: Sequence[Sequence[Any]]) -> int:
    """Returns a checksum of the result of `describe_files`, in its order."""
    return native.crc32c("\n".join(map(str, files)).encode())


def digest_of_table(clicks: Clicks) -> int:
    """Returns a checksum of a table's columns: of names, dtypes, shapes and both ends of values."""
    columns: dict[str, np.ndarray | Ragged] = {**clicks.labels, **clicks.features, **clicks.dense}
    checksum = 0
    for name, column in columns.items():
        arrays = [column.values, column.splits] if isinstance(column, Ragged) else [column]
        for array in arrays:
            rows = _END_BYTES // max(array[:1].nbytes, 1)
            text = f"{name} {array.dtype.str} {array.shape}".encode()
            for part in (text, array[:rows].tobytes(), array[-rows:].tobytes()):
                checksum = native.crc32c(part, checksum)
    return checksum


def _size_and_checksum(path: str) -> tuple[int, int]:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = os.pread(file.fileno(), _END_BYTES, 0)
        tail = os.pread(file.fileno(), _END_BYTES, max(size - _END_BYTES, 0))
    return size, native.crc32c(tail, native.crc32c(head))
