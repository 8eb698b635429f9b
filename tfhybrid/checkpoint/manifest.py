"""The contents of a checkpoint, and how damaged files are detected.

    DIRECTORY/step-0000001200/
        manifest.json              this module; names every other file with its size and checksum
        dense.safetensors          weights, optimizer, and what differs from rank to rank
        TABLE-00000.safetensors    keys [n], embeddings [n, dim], states [n, slots, dim], and where
                                   rows are admitted or evicted history [n, 16], bytes of
                                   native.HISTORY
        TABLE-00001.safetensors    ... the next block of rows
        TABLE-evicted.safetensors  keys [m] whose rows were evicted since the base

A checkpoint has all rows of its tables, or is a *delta*: the rows that changed since its base, the
previous checkpoint.

Nothing in a checkpoint is trusted: each field of the manifest is checked for type and range when
its dataclass is created, and sizes are checked before anything is allocated. This module needs
neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.untrusted_json import (
    are_counts,
    are_numbers,
    is_count,
    is_integer,
    is_object,
    is_text,
    parse_object,
    want,
)
from tfhybrid.core import native
from tfhybrid.core.native import OptimizerKind
from tfhybrid.data.position import Cursor
from tfhybrid.errors import CheckpointError

FORMAT = 1
MANIFEST = "manifest.json"
DENSE = "dense.safetensors"
_FILE_NAME = re.compile(r"[A-Za-z0-9_.%~-]{1,255}")
_MAX_MANIFEST_BYTES = 64 << 20  # a hundred thousand blocks
_MAX_DIM = 65536


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file of a checkpoint: its size and the CRC-32C of its content.

    Raises:
        ValueError: A field is no number of its kind.
    """

    size: int
    crc32c: int

    def __post_init__(self) -> None:
        want(is_count(self.size, 2**63), "a size in bytes", self.size)
        want(is_count(self.crc32c, 2**32), "a checksum of 32 bits", self.crc32c)

    @classmethod
    def of(cls, path: Location, on_read: Callable[[int], None] | None = None) -> FileEntry:
        """Reads a file and describes it.

        Args:
            path: The file.
            on_read: Called with the number of bytes after each piece that was read.

        Raises:
            OSError: It is missing, no plain file or cannot be read.
        """
        size = checksum = 0
        for piece in storage.pieces(path):
            checksum = native.crc32c(piece, checksum)
            size += len(piece)
            if on_read is not None:
                on_read(len(piece))
        return cls(size, checksum)


@dataclasses.dataclass(frozen=True)
class Base:
    """The base of a delta: its step, the CRC-32C of its manifest, its number in the chain.

    A checkpoint with all rows is number 0, the first delta after it is number 1.

    Raises:
        ValueError: A field is no number of its kind.
    """

    step: int
    crc32c: int
    sequence: int

    def __post_init__(self) -> None:
        want(is_count(self.step, 10**10), "a base's step", self.step)
        want(is_count(self.crc32c, 2**32), "a checksum of 32 bits", self.crc32c)
        want(is_count(self.sequence, 2**31), "a number in a chain", self.sequence)


@dataclasses.dataclass(frozen=True)
class TableEntry:
    """A table of a checkpoint.

    `rows` is the table's number of rows. The files hold all of them if `whole`, else those that
    changed since the base. `digest` covers the rows in the files. `decay` is the factor to which
    the initial values of keys without a row have decayed. `history` says whether rows have a
    history. `event_time` is the latest event time that the table has seen. `evicted` names the file
    of the keys that were evicted since the base; a key may have a row again. `optimizer_start` is
    the version at which the optimizer began.

    Raises:
        ValueError: A field is not of its type, or out of range.
    """

    dim: int
    rows: int
    version: int
    initializer: list[float]
    optimizer: list[float]
    state_slots: int
    expected_rows: int | None
    whole: bool
    digest: int
    files: list[str]
    decay: float = 1.0  # the value for older checkpoints; likewise below
    history: bool = False
    event_time: int | None = None
    evicted: str | None = None
    optimizer_start: int = 0

    def __post_init__(self) -> None:
        want(is_count(self.dim, _MAX_DIM + 1) and self.dim > 0, "a dim", self.dim)
        want(is_count(self.rows, 2**63), "a number of rows", self.rows)
        # The last version is reserved for an optimizer that is being replaced; none follows it.
        want(is_count(self.version, 2**64 - 1), "a version", self.version)
        started = is_count(self.optimizer_start, self.version + 1)
        want(started, "a version until that of the table", self.optimizer_start)
        want(are_numbers(self.initializer), "an initializer", self.initializer)
        want(are_numbers(self.optimizer), "an optimizer", self.optimizer)
        want(is_count(self.state_slots, 256), "a number of state slots", self.state_slots)
        expected = self.expected_rows is None or is_count(self.expected_rows, 2**63)
        want(expected, "a number of rows or null", self.expected_rows)
        want(isinstance(self.whole, bool), "true or false", self.whole)
        want(is_count(self.digest, 2**64), "a digest of 64 bits", self.digest)
        want(are_numbers([self.decay]) and 0 < self.decay <= 1, "a decay", self.decay)
        want(isinstance(self.history, bool), "true or false", self.history)
        time = self.event_time is None or is_integer(self.event_time, 2**63)
        want(time, "an event time of 64 bits or null", self.event_time)
        evicted = self.evicted is None or (isinstance(self.evicted, str) and not self.whole)
        want(evicted, "a file of evicted keys, of a delta alone", self.evicted)
        names = isinstance(self.files, list) and all(isinstance(name, str) for name in self.files)
        want(names and len(set(self.files)) == len(self.files), "names of files", self.files)

    @property
    def state_shape(self) -> tuple[int, int]:
        """Shape of a row's optimizer state: vectors, and floats in each."""
        of_rows = self.optimizer[:1] == [OptimizerKind.ROW_ADAGRAD]
        return (self.state_slots, 1 if of_rows else self.dim)

    @property
    def row_bytes(self) -> int:
        """Bytes per row in the files: key, embedding and states."""
        floats = self.dim + math.prod(self.state_shape)
        return 8 + 4 * floats + native.HISTORY.itemsize * self.history

    @property
    def clock(self) -> int:
        """`event_time` in the core's form."""
        return native.NO_TIME if self.event_time is None else self.event_time

    def just_updated(self, rows: int) -> np.ndarray:
        """Returns histories, `native.HISTORY`, as if the last update had created the rows."""
        history = np.array((1.0, self.version % 2**32, self.clock), native.HISTORY)
        return np.full(rows, history)

    @property
    def all_files(self) -> list[str]:
        """Names of the table's files, including that of evicted keys."""
        return self.files if self.evicted is None else [*self.files, self.evicted]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint's table of contents.

    Raises:
        ValueError: A field has the wrong type or is out of range, a file name is invalid, or tables
            and files do not match.
    """

    format: int
    step: int
    position: Cursor  # opaque: only the data interpret it
    ranks: int
    seed: int
    optimizer: str
    base: Base | None
    versions: dict[str, str]
    tables: dict[str, TableEntry]
    files: dict[str, FileEntry]
    writer: str = ""  # which job, for people

    def __post_init__(self) -> None:
        want(is_count(self.step, 10**10), "a step", self.step)
        want(is_object(self.position), "a position, an object of JSON", self.position)
        want(is_count(self.ranks, 2**31) and self.ranks > 0, "a number of ranks", self.ranks)
        want(is_count(self.seed, 2**64), "a seed", self.seed)
        want(is_text(self.writer), "who wrote it", self.writer)
        want(is_text(self.optimizer), "a class of optimizer", self.optimizer)
        before = self.base is None or self.base.step < self.step
        want(before, f"a base before step {self.step}", self.base)
        want(
            isinstance(self.versions, dict)
            and all(map(is_text, [*self.versions, *self.versions.values()])),
            "versions by name",
            self.versions,
        )
        for name in self.files:
            plain = _FILE_NAME.fullmatch(name) and name not in (".", "..", MANIFEST)
            want(bool(plain), "a file in the checkpoint's folder, none outside", name)
        want(DENSE in self.files, f"a file {DENSE}", sorted(self.files))
        self._check_tables()

    def _check_tables(self) -> None:
        owners: dict[str, str] = {DENSE: "the dense weights"}
        for name, entry in self.tables.items():
            legal = is_text(name) and 0 < len(name.encode()) <= 128 and "\0" not in name
            want(legal, "a table's name", name)
            for file in entry.all_files:
                want(file in self.files, f"a listed file for table {name!r}", file)
                want(file not in owners, f"a file of table {name!r} alone", file)
                owners[file] = name
            want(entry.whole or self.base is not None, f"all rows of table {name!r}", entry.whole)
            held = sum(self.files[file].size for file in entry.files)
            want(
                not entry.whole or entry.rows * entry.row_bytes <= held,
                f"{entry.row_bytes} bytes for each of {entry.rows} rows of table {name!r}",
                held,
            )

    @property
    def sequence(self) -> int:
        """0 for a checkpoint with all rows, else the number of deltas since that checkpoint."""
        return 0 if self.base is None else self.base.sequence + 1

    def write(self, folder: Location) -> Base:
        """Writes and syncs manifest.json; returns the base for a delta of this checkpoint."""
        fields = dataclasses.asdict(self)
        content = json.dumps(fields | {"crc32c": _checksum(fields)}, indent=1).encode()
        storage.write(folder / MANIFEST, content)
        return Base(self.step, native.crc32c(content), self.sequence)

    @classmethod
    def read(cls, folder: Location) -> Manifest:
        """Reads a manifest and checks its form.

        Raises:
            CheckpointError: It is missing, malformed or of another format.
        """
        path = folder / MANIFEST
        try:
            raw = _read_json(path)
            if raw["format"] != FORMAT:
                found = repr(raw["format"])[:100]
                raise CheckpointError(
                    f"{folder} has format {found}; this version reads format {FORMAT}."
                )
            checksum = raw.pop("crc32c", None)  # older manifests have none
            its_own = _checksum(raw)
            if isinstance(raw["position"], list):  # of a checkpoint before positions were cursors
                want(are_counts(raw["position"], 2**63), "epoch and step", raw["position"])
                epoch, step = raw["position"]
                raw["position"] = {"epoch": epoch, "step": step}
            raw["base"] = None if raw["base"] is None else Base(**raw["base"])
            raw["tables"] = {name: TableEntry(**entry) for name, entry in raw["tables"].items()}
            raw["files"] = {name: FileEntry(**entry) for name, entry in raw["files"].items()}
            manifest = cls(**raw)
            # Last, because an error about a field says more.
            want(checksum in (None, its_own), f"the checksum {its_own} of what it says", checksum)
            return manifest
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error!r}") from error

    def check_file(
        self, folder: Location, name: str, on_read: Callable[[int], None] | None = None
    ) -> None:
        """Compares a file with its size and checksum.

        Args:
            folder: The checkpoint's.
            name: One of `files`.
            on_read: Called with the number of bytes after each piece that was read.

        Raises:
            CheckpointError: It is missing or damaged.
        """
        path, wanted = folder / name, self.files[name]
        try:
            size = storage.size(path)
            found = FileEntry.of(path, on_read) if size == wanted.size else f"{size} bytes"
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        if found != wanted:
            raise CheckpointError(f"{path} is damaged: wanted {wanted}. Received: {found}")


def _checksum(fields: dict[str, Any]) -> int:
    """Returns the CRC-32C of a manifest's values, independent of whitespace."""
    return native.crc32c(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _read_json(path: Location) -> dict[str, Any]:
    size = storage.size(path)
    want(size <= _MAX_MANIFEST_BYTES, f"at most {_MAX_MANIFEST_BYTES} bytes", size)
    return parse_object(storage.read(path).tobytes())
