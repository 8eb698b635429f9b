"""Which job saves into a directory: one job alone, so that none replaces or prunes another's steps.

A job knows the steps that were there when it restored, and those that it saves. What else there is
comes from another job, or from a run that this one did not go on from. On rank 0.
"""

from __future__ import annotations

import logging
import os
import socket
import weakref

from tfhybrid.checkpoint import stored
from tfhybrid.checkpoint.manifest import Manifest
from tfhybrid.checkpoint.storage import Location
from tfhybrid.errors import CheckpointError
from tfhybrid.job import current_job
from tfhybrid.job.job import Job

CURSOR = "checkpoint"  # of the changed rows, of which each delta takes those since the one before

_log = logging.getLogger("tfhybrid.checkpoint")

# The steps that a job knows, by directory.
_known: weakref.WeakKeyDictionary[Job, dict[str, set[int]]] = weakref.WeakKeyDictionary()


def writer() -> str:
    """Returns how a manifest names this job."""
    return f"job {current_job().name} on {socket.gethostname()}"


def note_restored(directory: Location, restored: int | None, known: list[int]) -> None:
    """Takes what a directory has for steps that this job goes on from.

    Args:
        directory: Of the checkpoints.
        restored: The step that it goes on from, if there is one.
        known: All steps.
    """
    _steps_of(directory).update(known)
    later = [step for step in known if restored is not None and step > restored]
    if later:
        _log.warning(
            "%s has later checkpoints than step %d, which was restored: %s. A restart takes the "
            "last one, and so does a server: remove them, or save into another directory",
            directory,
            restored,
            later,
        )


def claim(directory: Location, step: int) -> bool:
    """Notes that this job saves a step; returns whether there is one that it replaces.

    Raises:
        CheckpointError: The directory has steps that this job does not know.
    """
    mine = _steps_of(directory)
    found = stored.steps(directory)
    foreign = [step for step in found if step not in mine]
    if foreign:
        raise CheckpointError(
            f"{directory} has checkpoints that {writer()} has neither saved nor restored from: "
            f"steps {foreign}, {_written_by(directory, foreign[-1])}. Two jobs do not save into "
            "one directory: choose another one, or go on from these with "
            "tfhybrid.checkpoint.restore(model, directory) before the first step"
        )
    mine.add(step)
    return step in found


def _steps_of(directory: Location) -> set[int]:
    path = os.path.realpath(directory) if isinstance(directory, os.PathLike) else str(directory)
    return _known.setdefault(current_job(), {}).setdefault(path, set())


def _written_by(directory: Location, step: int) -> str:
    try:
        return f"the last by {Manifest.read(stored.folder_of(directory, step)).writer or 'nobody'}"
    except CheckpointError:
        return "the last one damaged"
