"""Publications of a target model: weights that serving processes take, as files.

FOLDER/
    current.json      which one readers shall have; replaced at once
    held.json         which one they shall have instead, after a rollback
    withheld.json     why the last one that was not published was not
    0000000012/       appears whole
        publication.json TABLE-PART.safetensors, TABLE-evicted.safetensors

A *base* has all rows, a *delta* those that changed since the publication before it: as they are,
not by how much they changed. Numbers only grow. A base and the deltas on it are a chain, whose
members name each other by number and checksum. An *incarnation* is a history of weights: after a
fall-back to older weights there is a new one, with a base of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.table_file import read_arrays
from tfhybrid.core import native
from tfhybrid.errors import CorruptFileError, PublicationError

MANIFEST = "publication.json"
CURRENT = "current.json"
HELD = "held.json"
WITHHELD = "withheld.json"


class Member(NamedTuple):
    """A publication of a chain: its number, the checksum of its manifest, and its bytes."""

    number: int
    crc: int
    bytes: int


class PublishedFile(NamedTuple):
    """A file of a table: `kind` is `"rows"`, or `"removed"` for keys that have lost theirs."""

    table: str
    kind: str
    name: str
    crc: int


@dataclasses.dataclass(frozen=True)
class Publication:
    """What a publication says beside its rows.

    Args:
        number: Its own.
        incarnation: Of the weights.
        spec: `ModelSpec.to_json`.
        version: Updates that are in the weights.
        history: By which two histories of weights of one version are told apart.
        chain: Its base and the deltas on it, in order, without itself; empty for a base.
        files: Of the rows.
        rows: How many there are.
        removed: Keys whose rows were removed since the publication before.
        bytes: Of the files.
        samples: Rows of data that were trained since the publication before.
        times: Those by event time; as of `Observed`.
        auc: On those, before they were trained; `None` if it is not known.
        published: When, in seconds since 1970.
    """

    number: int
    incarnation: int
    spec: str
    version: int
    history: str
    chain: Sequence[Member]
    files: Sequence[PublishedFile]
    rows: int
    removed: int
    bytes: int
    samples: int
    times: Mapping[int, int]
    auc: float | None
    published: float

    @property
    def is_base(self) -> bool:
        """Whether it has all rows."""
        return not self.chain

    @property
    def base(self) -> int:
        """Number of the base of its chain."""
        return self.chain[0].number if self.chain else self.number


class Pointer(NamedTuple):
    """Which publication is meant, and whether readers are held there."""

    number: int
    crc: int
    incarnation: int
    held: bool = False


def folder_of(place: Location, number: int) -> Location:
    """Returns the folder of a publication."""
    return place / f"{number:010d}"


def write_manifest(folder: Location, publication: Publication) -> Member:
    """Writes what a publication says; the last of its files."""
    fields = dataclasses.asdict(publication)
    fields["times"] = [list(each) for each in publication.times.items()]
    content = json.dumps(fields).encode()
    crc = native.crc32c(content)
    storage.write(folder / MANIFEST, b"%08x\n" % crc + content)
    return Member(publication.number, crc, publication.bytes)


def read_manifest(place: Location, number: int, crc: int | None = None) -> Publication:
    """Reads what a publication says.

    Args:
        place: Of the target model's publications.
        number: Of the publication.
        crc: Checksum that it must have; by default any.

    Raises:
        PublicationError: It is not there, or another one.
        CorruptFileError: It is damaged.
    """
    publication, found = read_with_crc(place, number)
    if crc is not None and found != crc:
        raise PublicationError(
            f"{folder_of(place, number)} has the checksum {crc:08x}. Received: {found:08x}"
        )
    return publication


def read_with_crc(place: Location, number: int) -> tuple[Publication, int]:
    """Reads what a publication says, and returns its checksum too; see `read_manifest`."""
    path = folder_of(place, number) / MANIFEST
    try:
        crc, fields = _checked(path)
    except FileNotFoundError as error:
        raise PublicationError(
            f"{path.parent} is not there: it was pruned, or never complete"
        ) from error
    try:
        fields["chain"] = tuple(Member(*each) for each in fields["chain"])
        fields["files"] = tuple(PublishedFile(*each) for each in fields["files"])
        fields["times"] = {int(second): int(count) for second, count in fields["times"]}
        return Publication(**fields), crc
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path} describes no publication: {error!r}") from error


def numbers(place: Location) -> list[int]:
    """Returns the numbers of the publications that are there, complete ones or not."""
    if not place.is_dir():
        return []
    return sorted(int(each.name) for each in place.iterdir() if each.name.isdecimal())


def current(place: Location) -> Pointer | None:
    """Returns what the publisher has published last, or `None`.

    Raises:
        CorruptFileError: The file that says so is damaged.
    """
    return _pointer(place / CURRENT)


def held(place: Location) -> Pointer | None:
    """Returns where a rollback holds readers, or `None`."""
    found = _pointer(place / HELD)
    return None if found is None else found._replace(held=True)


def wanted(place: Location) -> Pointer | None:
    """Returns the publication that readers shall have, or `None` if there is none yet."""
    return held(place) or current(place)


def point_to(place: Location, pointer: Pointer, name: str = CURRENT) -> None:
    """Lets readers have a publication."""
    content = json.dumps([pointer.number, pointer.crc, pointer.incarnation]).encode()
    storage.write_whole(place / name, b"%08x\n" % native.crc32c(content) + content)


def note_withheld(place: Location, version: int, reason: str, at: float) -> None:
    """Notes why weights of a version are not published."""
    content = json.dumps({"version": version, "reason": reason, "time": at}).encode()
    storage.write_whole(place / WITHHELD, b"%08x\n" % native.crc32c(content) + content)


def withheld(place: Location) -> dict[str, Any] | None:
    """Returns what was noted last: version, reason and time; or `None`."""
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, Any] = _checked(place / WITHHELD)[1]
        return found
    return None


def read_file(folder: Location, file: PublishedFile) -> dict[str, np.ndarray]:
    """Reads the arrays of a file.

    Raises:
        CorruptFileError: It is missing, damaged, or another one.
    """
    path = folder / file.name
    try:
        crc = native.crc32c(storage.read(path))
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error}") from error
    if crc != file.crc:
        raise CorruptFileError(f"{path} is damaged: its checksum is {crc:08x}, not {file.crc:08x}")
    return read_arrays(path)


def _pointer(path: Location) -> Pointer | None:
    try:
        return Pointer(*_checked(path)[1])
    except FileNotFoundError:
        return None
    except TypeError as error:
        raise CorruptFileError(f"{path} names no publication: {error}") from error


def _checked(path: Location) -> tuple[int, Any]:
    """Returns the checksum of a file of JSON, and what it says."""
    head, _, content = storage.read(path).tobytes().partition(b"\n")
    crc = native.crc32c(content)
    if head != b"%08x" % crc:
        raise CorruptFileError(f"{path} is damaged: its checksum is not {head[:8]!r}")
    return crc, json.loads(content)
