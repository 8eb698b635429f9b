"""Points readers back to an earlier publication, and lets them go on."""

from __future__ import annotations

import contextlib

from tfhybrid.checkpoint.storage import Location
from tfhybrid.errors import PublicationError, TfhybridError
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.publication import Pointer


def roll_back(place: Location, number: int | None = None) -> Pointer:
    """Holds all readers at an earlier publication, until `release`.

    The publisher goes on, and keeps what readers are held at. It need not run: the folder is
    enough.

    Args:
        place: Of the model's publications.
        number: Of the publication. Defaults to the one before that which readers have.

    Returns:
        Where they are held.

    Raises:
        PublicationError: There is no such publication, or it lacks something.
    """
    there = _complete(place)
    if number is None:
        wanted = files.wanted(place)
        older = [it for it in there if wanted is not None and it < wanted.number]
        if not older:
            raise PublicationError(f"{place} has no earlier publication. Received: {sorted(there)}")
        number = max(older)
    if number not in there:
        raise PublicationError(f"{place} has the publications {sorted(there)}. Received: {number}")
    pointer = there[number]
    files.point_to(place, pointer, files.HELD)
    for member in files.read_manifest(place, number).chain:  # they may be pruned meanwhile
        files.read_manifest(place, member.number, member.crc)
    return pointer._replace(held=True)


def release(place: Location) -> Pointer | None:
    """Lets readers have what the publisher has published last; returns that."""
    path = place / files.HELD
    if path.exists():
        path.unlink()
    return files.current(place)


def _complete(place: Location) -> dict[int, Pointer]:
    """Returns the publications of which all is there."""
    found: dict[int, Pointer] = {}
    crcs: dict[int, int] = {}
    last = files.current(place)
    for number in files.numbers(place):
        if last is None or number > last.number:
            break  # it was never published
        with contextlib.suppress(TfhybridError):
            manifest, crcs[number] = files.read_with_crc(place, number)
            if all(crcs.get(it.number) == it.crc for it in manifest.chain):
                found[number] = Pointer(number, crcs[number], manifest.incarnation)
    return found
