"""Division of a checkpoint's files among the leaders that see its folder.

Replicas have the same rows in the same order, so file `i` of a table is the same on every leader.
The leaders write these files in turn. Every leader reads all its rows, writes its part, and leaves
a note in the folder that describes all files. Rank 0 compares the notes with its own before the
checkpoint is complete, and so compares the replicas. For sharded tables each leader writes all rows
that its host owns, and lists them in the note. No collective is needed, so this runs on threads
beside training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tfhybrid import distributed
from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.owned_rows import OwnedRows, together
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.stored import sweep
from tfhybrid.errors import CheckpointError
from tfhybrid.job import current_job
from tfhybrid.store import TableFile

_log = logging.getLogger("tfhybrid.checkpoint")

_POLL_SECONDS = 0.05


class WriterNote(NamedTuple):
    """Note of a leader about the files of a checkpoint.

    Attributes:
        files: Files of all replicated tables by name, whichever leader writes them.
        owned: Rows of sharded tables that the leader's host owns, by table.
    """

    files: Mapping[str, TableFile]
    owned: Mapping[str, OwnedRows]


@dataclasses.dataclass(frozen=True)
class Writers:
    """Part of this rank in writing a checkpoint.

    Args:
        unfinished: Folder to write to. `None` if it could not be created.
        leaders: Ranks of the leaders that write, ascending, rank 0 first.
        hosts: Name of each rank's host, by rank.
        blind: Names of the hosts that do not see the folder. Default: none.
        failure: Error in preparing or creating the folder; set on rank 0 alone. Default: `None`.
    """

    unfinished: Location | None
    leaders: tuple[int, ...]
    hosts: tuple[str, ...]
    blind: tuple[str, ...] = ()
    failure: OSError | None = None

    @classmethod
    def agree(cls, folder: Location, failure: OSError | None = None) -> Writers:
        """Creates the folder and finds the leaders that see it; every rank must call it.

        Args:
            folder: Final folder of the checkpoint.
            failure: Earlier error of rank 0, because of which no folder is created. Default: none.

        Returns:
            The part of this rank. An error in creating the folder is returned, not raised.
        """
        created = None
        if distributed.rank() == 0 and failure is None:
            try:
                sweep(folder.parent)
                created = storage.begin(folder, secrets.token_hex(4))
            except OSError as error:  # raised when the checkpoint is written: training continues
                failure = error
        unfinished = distributed.broadcast_object(created)
        leads = current_job().is_leader
        sees = unfinished is not None and leads and _sees(unfinished)
        mine = (leads, sees, socket.gethostname())
        by_rank = distributed.allgather_object(mine)
        blind = [host for leads, sees, host in by_rank if leads and not sees]
        if unfinished is not None and blind and distributed.rank() == 0:
            _log.warning(
                "%s is not visible on the hosts %s: the other hosts write the checkpoint. Make it "
                "visible there before you restore",
                folder.parent,
                blind,
            )
        leaders = tuple(rank for rank, (_, sees, _) in enumerate(by_rank) if sees)
        hosts = tuple(host for *_, host in by_rank)
        return cls(unfinished, leaders, hosts, tuple(blind), failure)

    @property
    def writes(self) -> bool:
        """Whether this rank writes files."""
        return distributed.rank() in self.leaders

    def is_mine(self, file: int) -> bool:
        """Returns whether this rank writes a file of a replicated table.

        Args:
            file: Number of the file, counted over all tables.
        """
        return self.leaders[file % len(self.leaders)] == distributed.rank()

    def announce(self, note: WriterNote | Exception) -> None:
        """Sends this leader's note to rank 0. Does nothing if rank 0 has removed the folder.

        Args:
            note: Note, or the error if this leader failed.
        """
        assert self.unfinished is not None
        if isinstance(note, Exception):
            fields: dict[str, object] = {"failure": f"{type(note).__name__}: {note}"}
        else:
            owned = {table: rows.as_json() for table, rows in note.owned.items()}
            fields = {"files": note.files, "owned": owned}
        with contextlib.suppress(OSError):  # rank 0 failed and removed the folder
            storage.write_whole(self._note(distributed.rank()), json.dumps(fields).encode())

    def compare(self, note: WriterNote) -> dict[str, OwnedRows]:
        """Waits for the notes of all other leaders and compares them; only on rank 0.

        Args:
            note: Note of rank 0 itself.

        Returns:
            The rows of each sharded table, those of all hosts together.

        Raises:
            CheckpointError: A leader failed, or its replica differs, or the job ended.
            OSError: A note cannot be read.
        """
        mine = note.files
        owned = {table: [rows] for table, rows in note.owned.items()}
        for rank in self.leaders[1:]:
            fields = json.loads(self._await(rank))
            host = f"rank {rank} on {self.hosts[rank]}"
            if "failure" in fields:
                raise CheckpointError(f"{host}: {fields['failure']}")
            theirs = {name: TableFile(*file) for name, file in fields["files"].items()}
            for table, rows in fields["owned"].items():
                owned[table].append(OwnedRows.from_json(rows))
            different = sorted(
                name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)
            )
            if different:
                name = different[0]
                raise CheckpointError(
                    f"The replicas differ: {host} has {theirs.get(name)} in {name}, rank 0 on "
                    f"{self.hosts[0]} has {mine.get(name)}; {len(different)} of "
                    f"{len(mine)} files differ"
                )
        return {table: together(hosts) for table, hosts in owned.items()}

    def _await(self, rank: int) -> bytes:
        path = self._note(rank)
        while not path.exists():
            if not threading.main_thread().is_alive():
                raise CheckpointError(f"The job ended before rank {rank} had written its files")
            time.sleep(_POLL_SECONDS)
        note = storage.read(path).tobytes()
        path.unlink()
        return note

    def _note(self, rank: int) -> Location:
        assert self.unfinished is not None
        return self.unfinished / f"share-{rank}.json"


def _sees(folder: Location) -> bool:
    # A remote store may not show an empty folder.
    return not isinstance(folder, Path) or folder.exists()
