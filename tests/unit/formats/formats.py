"""The fixed objects of the golden files, and how the project writes and reads them.

Every field has a value of its own, so that two fields that change places are noticed. Nothing here
depends on clocks, random numbers or how floats are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.unit.formats import cluster, saved, weights

GOLDEN = Path(__file__).parent / "golden"


class Format(NamedTuple):
    """A format.

    Attributes:
        write: Writes its files into an empty folder; the second folder is in shared memory.
        read: Returns what the files of a folder say; arguments as above. It changes no file.
        expected: What `read` returns of the golden files.
    """

    write: Callable[[Path, Path], None]
    read: Callable[[Path, Path], Any]
    expected: Any


def files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a folder by their path in it; a file that is only locked is left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "writer.lock"
    }


FORMATS = {
    "model_spec": Format(weights.write_spec, weights.read_spec, weights.SPEC),
    "weight_update": Format(
        weights.write_update,
        weights.read_update,
        (weights.fields_of(weights.update_of(10)), weights.OBSERVED),
    ),
    "target_model": Format(weights.write_model, weights.read_model, [weights.MODEL, weights.MODEL]),
    "first_base": Format(weights.write_first_base, weights.read_first_base, weights.FIRST_BASE),
    "base": Format(
        weights.write_base, weights.read_base, (weights.BASE, [("item", weights.ROWS_FILE)])
    ),
    "publication": Format(weights.write_publication, weights.read_publication, weights.PUBLICATION),
    "membership": Format(cluster.write_membership, cluster.read_membership, cluster.VIEW),
    "read_log": Format(cluster.write_read_log, cluster.read_read_log, cluster.READ_LOG),
    "manifest": Format(saved.write_manifest, saved.read_manifest, (saved.MANIFEST, saved.BEST)),
    "processes": Format(cluster.write_processes, cluster.read_processes, cluster.PROCESSES),
    "messages": Format(cluster.write_messages, cluster.read_messages, cluster.MESSAGES),
}
