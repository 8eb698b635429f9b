"""Publications of a target model: files of weights that serving processes read.

FOLDER/
    current.json      pointer to the publication to read; replaced atomically
    held.json         pointer that takes precedence after a rollback
    withheld.json     reason for the last publication that was withheld
    0000000012/       one publication; appears complete
        publication.json TABLE-PART.safetensors, TABLE-evicted.safetensors

A *base* has all rows. A *delta* has the rows that changed since the previous publication, with
their new values. Numbers only grow. A base and the deltas after it are a *chain*; each delta lists
the earlier members by number and checksum. An *incarnation* is one history of weights: if the sync
unit falls back to older weights, a new incarnation starts with a base.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.table_file import read_arrays
from tfhybrid.errors import CorruptFileError, PublicationError
from tfhybrid.stream.weights import checked_json

MANIFEST = "publication.json"
CURRENT = "current.json"
HELD = "held.json"
WITHHELD = "withheld.json"


class ChainMember(NamedTuple):
    """Publication as a member of a chain: a base (all rows), or a delta (changed rows) after it.

    Holds the publication's number, its manifest's checksum, and its size in bytes.
    """

    number: int
    crc: int
    bytes: int


class PublishedFile(NamedTuple):
    """File of a table. `kind` is `"rows"`, or `"removed"` for keys whose rows were removed."""

    table: str
    kind: str
    name: str
    crc: int


@dataclasses.dataclass(frozen=True)
class Publication:
    """Metadata of published weights.

    A chain is a base (all rows) and the deltas (changed rows) that follow it.

    Args:
        number: Number of the publication.
        incarnation: Number of the history of weights; grows after a fall-back.
        spec: Specification of the model, as JSON of `ModelSpec.to_json`.
        version: Number of updates in the weights.
        history: Hash of all updates so far; tells apart two histories with the same version.
        chain: Base and deltas before this publication, in order; empty for a base.
        files: Files of the rows and of the removed keys.
        rows: Number of rows in the files.
        removed: Number of keys whose rows were removed since the previous publication.
        bytes: Size of all files, in bytes.
        samples: Number of samples trained since the previous publication.
        times: Number of these samples by event time, as `Observed.times`.
        auc: AUC on these samples, predicted before they were trained; `None` if unknown.
        published: Time of publication, in seconds since 1970.
    """

    number: int
    incarnation: int
    spec: str
    version: int
    history: str
    chain: Sequence[ChainMember]
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
        """Whether the publication has all rows."""
        return not self.chain

    @property
    def base(self) -> int:
        """Number of the base (all rows) on which this publication builds; its own for a base."""
        return self.chain[0].number if self.chain else self.number


class Pointer(NamedTuple):
    """Reference to a publication by number, checksum of its manifest, and incarnation.

    `held` tells whether a rollback holds readers there.
    """

    number: int
    crc: int
    incarnation: int
    held: bool = False


def folder_of(folder: Location, number: int) -> Location:
    """Returns the path of a publication's folder. Creates nothing.

    Args:
        folder: Folder of the target model's publications.
        number: Number of the publication.
    """
    return folder / f"{number:010d}"


def write_manifest(folder: Location, publication: Publication) -> ChainMember:
    """Writes the manifest of a publication; returns the publication as a member of its chain.

    Must be called after all other files are written: the manifest makes the publication complete.

    Args:
        folder: Folder of the publication.
        publication: Metadata to write.

    Raises:
        OSError: The file cannot be written.
    """
    fields = dataclasses.asdict(publication)
    fields["times"] = [list(each) for each in publication.times.items()]
    content, crc = checked_json.encoded(fields)
    storage.write(folder / MANIFEST, content)
    return ChainMember(publication.number, crc, publication.bytes)


def read_manifest(folder: Location, number: int, crc: int | None = None) -> Publication:
    """Reads the manifest of a publication.

    Args:
        folder: Folder of the target model's publications.
        number: Number of the publication.
        crc: Checksum that the manifest must have. Default: any.

    Returns:
        Metadata of the publication.

    Raises:
        PublicationError: The publication does not exist, or has another checksum.
        CorruptFileError: The manifest is damaged.
        OSError: The file cannot be read.
    """
    publication, checksum = read_with_crc(folder, number)
    if crc is not None and checksum != crc:
        raise PublicationError(
            f"{folder_of(folder, number)} is another publication: its checksum must be {crc:08x}. "
            f"Received: {checksum:08x}"
        )
    return publication


def read_with_crc(folder: Location, number: int) -> tuple[Publication, int]:
    """Returns a publication and the checksum of its manifest.

    Args:
        folder: Folder of the target model's publications.
        number: Number of the publication.

    Raises:
        PublicationError: The publication does not exist.
        CorruptFileError: The manifest is damaged.
        OSError: The file cannot be read.
    """
    path = folder_of(folder, number) / MANIFEST
    try:
        fields, crc = checked_json.read(path)
    except FileNotFoundError as error:
        raise PublicationError(
            f"{path.parent} does not exist: the publication was pruned, or never completed"
        ) from error
    try:
        fields["chain"] = tuple(ChainMember(*each) for each in fields["chain"])
        fields["files"] = tuple(PublishedFile(*each) for each in fields["files"])
        fields["times"] = {int(second): int(count) for second, count in fields["times"]}
        publication = Publication(**fields)
        _check(publication, number)
        return publication, crc
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFileError(f"{path} does not describe a publication: {error!r}") from error


def _check(publication: Publication, number: int) -> None:
    """Checks the fields by which a publication is read.

    Raises:
        ValueError: A field has another type or an impossible value.
    """
    names = ("number", "incarnation", "version", "rows", "removed", "bytes", "samples")
    counts = [getattr(publication, name) for name in names]
    counts += [count for member in publication.chain for count in member]
    counts += [file.crc for file in publication.files]
    texts = [publication.spec, publication.history]
    texts += [text for file in publication.files for text in file[:3]]
    times = [*publication.times.values()]
    if not all(type(count) is int and count >= 0 for count in [*counts, *times]):
        raise ValueError(f"counts are from 0. Received: {counts}, and times {times}")
    if publication.number != number:
        raise ValueError(f"it is publication {number}. Received: {publication.number}")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts. Received: {texts}")
    for file in publication.files:
        if file.name in ("", ".", "..") or "/" in file.name or "\0" in file.name:
            raise ValueError(f"files lie in the folder. Received: {file.name!r}")


def numbers(folder: Location) -> list[int]:
    """Returns the numbers of all publications in a folder, ascending, incomplete ones included.

    The list is empty if the folder does not exist.

    Raises:
        OSError: The folder cannot be read.
    """
    if not folder.is_dir():
        return []
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdecimal())


def current(folder: Location) -> Pointer | None:
    """Returns the pointer to the last publication, or `None` if there is none.

    Raises:
        CorruptFileError: The pointer's file is damaged.
        OSError: The file cannot be read.
    """
    return _pointer(folder / CURRENT)


def held(folder: Location) -> Pointer | None:
    """Returns the pointer at which a rollback holds readers, or `None` without a rollback.

    Raises:
        CorruptFileError: The pointer's file is damaged.
        OSError: The file cannot be read.
    """
    pointer = _pointer(folder / HELD)
    return None if pointer is None else pointer._replace(held=True)


def wanted(folder: Location) -> Pointer | None:
    """Returns the pointer to the publication that readers must load, or `None` if there is none.

    Raises:
        CorruptFileError: The pointer's file is damaged.
        OSError: The file cannot be read.
    """
    return held(folder) or current(folder)


def point_to(folder: Location, pointer: Pointer, name: str = CURRENT) -> None:
    """Points readers to a publication; replaces the pointer's file atomically.

    Does not check that the publication exists.

    Args:
        folder: Folder of the target model's publications.
        pointer: Publication to read.
        name: Name of the pointer's file, `CURRENT` or `HELD`. Default: `CURRENT`.

    Raises:
        OSError: The file cannot be written.
    """
    content, _ = checked_json.encoded([pointer.number, pointer.crc, pointer.incarnation])
    storage.write_whole(folder / name, content)


def note_withheld(folder: Location, version: int, reason: str, at: float) -> None:
    """Records the reason why the weights of a version are withheld.

    Args:
        folder: Folder of the target model's publications.
        version: Version of the weights.
        reason: Reason, as text for people.
        at: Time, in seconds since 1970.

    Raises:
        OSError: The file cannot be written.
    """
    content, _ = checked_json.encoded({"version": version, "reason": reason, "time": at})
    storage.write_whole(folder / WITHHELD, content)


def withheld(folder: Location) -> dict[str, Any] | None:
    """Returns the last record of `note_withheld`, or `None`: version, reason and time.

    Raises:
        CorruptFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    with contextlib.suppress(FileNotFoundError):
        fields: dict[str, Any] = checked_json.read(folder / WITHHELD)[0]
        return fields
    return None


def read_file(folder: Location, file: PublishedFile) -> dict[str, np.ndarray]:
    """Reads the arrays of a publication's file.

    Args:
        folder: Folder of the publication.
        file: File, as listed in `Publication.files`.

    Returns:
        Arrays by name.

    Raises:
        CorruptFileError: The file is missing or damaged, or is not the one that was published.
    """
    path = folder / file.name
    if isinstance(path, Path) and path.is_symlink():
        raise CorruptFileError(f"{path} must be a file. Received: a link")
    try:
        checked_json.check(path, file.crc)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error}") from error
    return read_arrays(path)


def _pointer(path: Location) -> Pointer | None:
    try:
        pointer = Pointer(*checked_json.read(path)[0])
        if not all(type(number) is int for number in pointer[:3]):
            raise TypeError(f"{pointer[:3]} are no integers")
        return pointer
    except FileNotFoundError:
        return None
    except TypeError as error:
        raise CorruptFileError(f"{path} does not name a publication: {error}") from error
