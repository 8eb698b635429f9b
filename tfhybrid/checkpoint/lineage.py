"""Lets only one job save into a directory, so that no job replaces or prunes another's steps.

A job knows the steps that were there when it restored, and those that it saves. Any other step
comes from another job, or from a run that this job did not continue. Used on rank 0.
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

# The steps that this job knows, by directory.
_known: weakref.WeakKeyDictionary[Job, dict[str, set[int]]] = weakref.WeakKeyDictionary()


def writer() -> str:
    """Returns this job's name in a manifest."""
    return f"job {current_job().name} on {socket.gethostname()}"


def note_restored(directory: Location, restored: int | None, known: list[int]) -> None:
    """Declares that this job continues from the steps of a directory.

    Args:
        directory: The directory of the checkpoints.
        restored: The step from which the job continues, if any.
        known: All steps of the directory.
    """
    _steps_of(directory).update(known)
    later = [step for step in known if restored is not None and step > restored]
    if later:
        _log.warning(
            "%s has later checkpoints than the restored step %d: %s. A restart or a server would "
            "use the newest one: remove them, or save into another directory",
            directory,
            restored,
            later,
        )


def claim(directory: Location, step: int) -> bool:
    """Records that this job saves a step; returns whether it replaces a checkpoint.

    Raises:
        CheckpointError: The directory has steps that this job does not know.
    """
    mine = _steps_of(directory)
    found = stored.steps(directory)
    foreign = [step for step in found if step not in mine]
    if foreign:
        raise CheckpointError(
            f"{directory} has checkpoints that {writer()} has neither saved nor restored from: "
            f"steps {foreign}, {_written_by(directory, foreign[-1])}. Two jobs cannot save into "
            "one directory: choose another one, or continue from these with "
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
