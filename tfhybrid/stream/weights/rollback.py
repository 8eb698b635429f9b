"""Rollback of all readers of a model to an earlier publication, and its release."""

from __future__ import annotations

import contextlib

from tfhybrid.checkpoint.storage import Location
from tfhybrid.errors import PublicationError, TfhybridError
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.publication import Pointer


def roll_back(folder: Location, number: int | None = None) -> Pointer:
    """Holds all readers at an earlier publication until `release`.

    The publisher continues, and keeps the publication at which readers are held. Only the folder is
    needed: the publisher need not run. If this raises, readers may be held already; `release` them
    or choose another publication.

    Args:
        folder: Folder of the model's publications.
        number: Number of the publication. Default: the newest one before the publication that
            readers load now.

    Returns:
        Pointer to the publication at which readers are held.

    Raises:
        PublicationError: There is no such publication, or a member of its chain is missing.
        CorruptFileError: A pointer or a manifest is damaged.
        OSError: The folder cannot be read or written.
    """
    complete = _complete(folder)
    if number is None:
        current = files.wanted(folder)
        older = [each for each in complete if current is not None and each < current.number]
        if not older:
            raise PublicationError(
                f"{folder} has no earlier publication to roll back to. Received: {sorted(complete)}"
            )
        number = max(older)
    if number not in complete:
        raise PublicationError(
            f"{folder} has the complete publications {sorted(complete)}. Received: {number}"
        )
    pointer = complete[number]
    files.point_to(folder, pointer, files.HELD)
    # Checked again, because the publisher may have pruned them before it saw the pointer.
    for member in files.read_manifest(folder, number).chain:
        files.read_manifest(folder, member.number, member.crc)
    return pointer._replace(held=True)


def release(folder: Location) -> Pointer | None:
    """Ends a rollback, if there is one, so that readers load the newest publication again.

    Args:
        folder: Folder of the model's publications.

    Returns:
        Pointer to the newest publication, or `None` if there is none.

    Raises:
        CorruptFileError: The pointer is damaged.
        OSError: The folder cannot be read or written.
    """
    path = folder / files.HELD
    if path.exists():
        path.unlink()
    return files.current(folder)


def _complete(folder: Location) -> dict[int, Pointer]:
    """Returns pointers to the published publications whose chains are complete, by number."""
    pointers: dict[int, Pointer] = {}
    crcs: dict[int, int] = {}
    last = files.current(folder)
    for number in files.numbers(folder):
        if last is None or number > last.number:
            break  # it was never published
        with contextlib.suppress(TfhybridError):
            manifest, crcs[number] = files.read_with_crc(folder, number)
            if all(crcs.get(member.number) == member.crc for member in manifest.chain):
                pointers[number] = Pointer(number, crcs[number], manifest.incarnation)
    return pointers
