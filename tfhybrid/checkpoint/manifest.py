"""Manifest of a checkpoint: names all files, and detects damaged ones.

    DIRECTORY/step-0000001200/
        manifest.json              this module; lists every other file with its size and checksum
        dense.safetensors          weights, optimizer, and the variables of each rank
        TABLE-00000.safetensors    keys [n], embeddings [n, dim], states [n, slots, dim]; and, with
                                   admission or eviction, history [n, 16], bytes of native.HISTORY
        TABLE-00001.safetensors    ... the next block of rows
        TABLE-evicted.safetensors  keys [m] whose rows were evicted since the base

A checkpoint has either all rows of its tables, or is a *delta*: it has the rows that changed since
its base, the previous checkpoint.

Nothing in a checkpoint is trusted: each field of the manifest is checked for type and range when
its dataclass is created, and sizes are checked before anything is allocated. This module needs
neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import dataclasses
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
from tfhybrid.core import checked_object, native
from tfhybrid.core.native import OptimizerKind
from tfhybrid.data.position import Cursor
from tfhybrid.errors import CheckpointError

FORMAT = 1
MANIFEST = "manifest.json"
DENSE = "dense.safetensors"
_FILE_NAME = re.compile(r"[A-Za-z0-9_.%~-]{1,255}")
_MAX_MANIFEST_BYTES = 64 << 20  # enough for a hundred thousand blocks
_MAX_DIM = 65536


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """File of a checkpoint: its size in bytes, and the CRC-32C of its content.

    Raises:
        ValueError: A field has the wrong type or is out of range.
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
            path: Path of the file.
            on_read: Function that is called with the size of each piece after it is read. Default:
                none.

        Returns:
            Size and checksum of the file.

        Raises:
            OSError: The file is missing, is not a plain file, or cannot be read.
        """
        size = checksum = 0
        for piece in storage.pieces(path):
            checksum = native.crc32c(piece, checksum)
            size += len(piece)
            if on_read is not None:
                on_read(len(piece))
        return cls(size, checksum)


@dataclasses.dataclass(frozen=True)
class BaseEntry:
    """Base of a delta: its step, the CRC-32C of its manifest, and its number in the chain.

    A checkpoint with all rows has the number 0, the first delta after it the number 1.

    A delta's base is the checkpoint before it, which may be a delta too; a chain ends at all rows.

    Raises:
        ValueError: A field has the wrong type or is out of range.
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
    """Description of a table in a checkpoint, which has all rows, or the changes since a base.

    Args:
        dim: Number of floats in an embedding.
        rows: Number of rows in the table.
        version: Number of updates of the table.
        initializer: `native` form of the initializer.
        optimizer: Settings of the optimizer, in the core's form; empty for a frozen table.
        state_slots: Number of vectors in a row's optimizer state.
        expected_rows: Number of rows to expect, as in `TableConfig`, or `None`.
        whole: Whether the files have all rows, or only those that changed since the base.
        digest: Digest of the rows in the files.
        files: Names of the files of the rows.
        decay: Factor by which the initial values of keys without a row have decayed. Default 1.
        history: Whether rows have a history. Default: no.
        event_time: Latest event time that the table has seen, or `None`, the default.
        evicted: Name of the file of the keys that were evicted since the base; such a key may have
            a new row. Default: `None`, no key was evicted.
        optimizer_start: Version at which the optimizer started. Default 0.
        unseen: Embedding that keys without a row read outside of training: `"zeros"`, or
            `"initial"`, the default, their initial values.

    Raises:
        ValueError: A field has the wrong type or is out of range.
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
    decay: float = 1.0  # the defaults are the values of older checkpoints
    history: bool = False
    event_time: int | None = None
    evicted: str | None = None
    optimizer_start: int = 0
    unseen: str = "initial"

    def __post_init__(self) -> None:
        want(is_count(self.dim, _MAX_DIM + 1) and self.dim > 0, "a dim", self.dim)
        want(is_count(self.rows, 2**63), "a number of rows", self.rows)
        # The last version is reserved for an optimizer that is being replaced; none follows it.
        want(is_count(self.version, 2**64 - 1), "a version", self.version)
        started = is_count(self.optimizer_start, self.version + 1)
        want(started, "a version up to that of the table", self.optimizer_start)
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
        want(evicted, "a file of evicted keys, only in a delta", self.evicted)
        want(self.unseen in ("zeros", "initial"), "zeros or initial", self.unseen)
        names = isinstance(self.files, list) and all(isinstance(name, str) for name in self.files)
        want(names and len(set(self.files)) == len(self.files), "names of files", self.files)

    @property
    def state_shape(self) -> tuple[int, int]:
        """Shape of a row's optimizer state: number of vectors, and of floats in each."""
        of_rows = self.optimizer[:1] == [OptimizerKind.ROW_ADAGRAD]
        return (self.state_slots, 1 if of_rows else self.dim)

    @property
    def row_bytes(self) -> int:
        """Size in bytes of a row in the files: key, embedding, optimizer state and history."""
        floats = self.dim + math.prod(self.state_shape)
        return 8 + 4 * floats + native.HISTORY.itemsize * self.history

    @property
    def clock(self) -> int:
        """Latest event time of the table, as the core counts it; `native.NO_TIME` if unknown."""
        return native.NO_TIME if self.event_time is None else self.event_time

    def just_updated(self, rows: int) -> np.ndarray:
        """Returns histories `native.HISTORY [rows]`, as if the last update had made the rows.

        A history is the frequency and last use of a key, by which rows are evicted.

        Args:
            rows: Number of rows.
        """
        history = np.array((1.0, self.version % 2**32, self.clock), native.HISTORY)
        return np.full(rows, history)

    @property
    def all_files(self) -> list[str]:
        """Names of the table's files, including that of evicted keys."""
        return self.files if self.evicted is None else [*self.files, self.evicted]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Table of contents of a checkpoint.

    Args:
        format: Version of the format, `FORMAT`.
        step: Step of the checkpoint.
        position: Position in the data, as JSON; only the data interpret it.
        ranks: Number of ranks that saved.
        seed: Seed of the job.
        optimizer: Class name of the dense optimizer.
        base: Base of a delta; `None` for a checkpoint with all rows.
        versions: Versions of the software that saved, by name.
        tables: Tables by name.
        files: All files but the manifest, by name.
        writer: Description of the job that saved, for people. Default: empty.
        features: Description of the model's features, as JSON. Default: none.

    Raises:
        ValueError: A field has the wrong type or is out of range, a file name is invalid, or tables
            and files do not match.
    """

    format: int
    step: int
    position: Cursor
    ranks: int
    seed: int
    optimizer: str
    base: BaseEntry | None
    versions: dict[str, str]
    tables: dict[str, TableEntry]
    files: dict[str, FileEntry]
    writer: str = ""
    features: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        want(is_count(self.step, 10**10), "a step", self.step)
        want(is_object(self.position), "a position, an object of JSON", self.position)
        want(is_count(self.ranks, 2**31) and self.ranks > 0, "a number of ranks", self.ranks)
        want(is_count(self.seed, 2**64), "a seed", self.seed)
        want(is_text(self.writer), "a writer's name", self.writer)
        want(is_object(self.features), "features, an object of JSON", self.features)
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
        """Number of deltas since the last checkpoint with all rows; 0 if this is that one."""
        return 0 if self.base is None else self.base.sequence + 1

    def write(self, folder: Location) -> BaseEntry:
        """Writes manifest.json and forces it to disk; returns the base for the next delta.

        Raises:
            OSError: The file cannot be written.
        """
        fields = dataclasses.asdict(self)
        # Older versions can read it without these.
        for entry in fields["tables"].values():
            if entry["unseen"] == "initial":
                del entry["unseen"]
        if not self.features:
            del fields["features"]
        content = checked_object.encoded(fields, indent=1)
        storage.write(folder / MANIFEST, content)
        return BaseEntry(self.step, native.crc32c(content), self.sequence)

    @classmethod
    def read(cls, folder: Location) -> Manifest:
        """Reads the manifest of a checkpoint and checks its form.

        Args:
            folder: Folder of the checkpoint.

        Returns:
            The manifest.

        Raises:
            CheckpointError: The manifest is missing, malformed or has another format.
        """
        path = folder / MANIFEST
        try:
            raw = _read_json(path)
            if raw["format"] != FORMAT:
                received = repr(raw["format"])[:100]
                raise CheckpointError(
                    f"{folder} has format {received}; this version reads format {FORMAT}."
                )
            checksum = raw.pop("crc32c", None)  # older manifests have none
            computed = checked_object.checksum(raw)
            if isinstance(raw["position"], list):  # an older checkpoint: epoch and step
                want(are_counts(raw["position"], 2**63), "epoch and step", raw["position"])
                epoch, step = raw["position"]
                raw["position"] = {"epoch": epoch, "step": step}
            raw["base"] = None if raw["base"] is None else BaseEntry(**raw["base"])
            raw["tables"] = {name: TableEntry(**entry) for name, entry in raw["tables"].items()}
            raw["files"] = {name: FileEntry(**entry) for name, entry in raw["files"].items()}
            manifest = cls(**raw)
            # Last, because an error about a field is more specific.
            want(checksum in (None, computed), f"the checksum {computed} of its fields", checksum)
            return manifest
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error!r}") from error

    def check_file(
        self, folder: Location, name: str, on_read: Callable[[int], None] | None = None
    ) -> None:
        """Verifies the size and checksum of a file.

        Args:
            folder: Folder of the checkpoint.
            name: Name of the file; one of `files`.
            on_read: Function that is called with the size of each piece after it is read. Default:
                none.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        path, expected = folder / name, self.files[name]
        try:
            size = storage.size(path)
            actual = FileEntry.of(path, on_read) if size == expected.size else f"{size} bytes"
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        if actual != expected:
            raise CheckpointError(f"{path} is damaged: wanted {expected}. Received: {actual}")


def _read_json(path: Location) -> dict[str, Any]:
    size = storage.size(path)
    want(size <= _MAX_MANIFEST_BYTES, f"at most {_MAX_MANIFEST_BYTES} bytes", size)
    return parse_object(storage.read(path).tobytes())
