"""Guard that lets only one job save into a directory, so that no job replaces another's steps.

A job knows the steps that existed when it restored, and those that it saves. Any other step comes
from another job, or from a run that this job does not continue. Used on rank 0 alone.
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

CURSOR = "checkpoint"  # name of the cursor that tracks the changed rows for deltas

_log = logging.getLogger("tfhybrid.checkpoint")

# The steps that each job knows, by directory.
_steps_of_jobs: weakref.WeakKeyDictionary[Job, dict[str, set[int]]] = weakref.WeakKeyDictionary()


def writer() -> str:
    """Returns a description of this job for the manifest: the job's name and this host's name.

    Raises:
        NotInitializedError: No job is running.
    """
    return f"job {current_job().name} on {socket.gethostname()}"


def note_restored(directory: Location, restored: int | None, steps: list[int]) -> None:
    """Records that this job continues from the steps of a directory.

    Logs a warning if the directory has later steps than the restored one.

    Args:
        directory: Directory of the checkpoints.
        restored: Step from which the job continues; `None` if no step was chosen.
        steps: All steps of the directory.
    """
    _steps_of(directory).update(steps)
    later = [step for step in steps if restored is not None and step > restored]
    if later:
        _log.warning(
            "%s has later checkpoints than the restored step %d: %s. A restart or a server would "
            "use the newest one. Remove them, or save into another directory",
            directory,
            restored,
            later,
        )


def claim(directory: Location, step: int) -> bool:
    """Checks that this job may save a step, and records in this process that it does.

    Rank 0 calls it before the checkpoint is written. Nothing in the directory changes.

    Args:
        directory: Directory of the checkpoints.
        step: Step that the job is about to save.

    Returns:
        Whether the directory already has a checkpoint of the same step, which will be replaced.

    Raises:
        CheckpointError: The directory has a step that this job has neither saved itself nor found
            there when it restored (`note_restored`); another job saves there.
        OSError: The directory cannot be read.
        NotInitializedError: No job is running.
    """
    mine = _steps_of(directory)
    existing = stored.steps(directory)
    foreign = [step for step in existing if step not in mine]
    if foreign:
        raise CheckpointError(
            f"{directory} has checkpoints that {writer()} has neither saved nor restored from: "
            f"steps {foreign}, {_written_by(directory, foreign[-1])}. Two jobs cannot save into "
            "one directory: choose another one, or continue from these with "
            "tfhybrid.checkpoint.restore(model, directory) before the first step"
        )
    mine.add(step)
    return step in existing


def _steps_of(directory: Location) -> set[int]:
    path = os.path.realpath(directory) if isinstance(directory, os.PathLike) else str(directory)
    return _steps_of_jobs.setdefault(current_job(), {}).setdefault(path, set())


def _written_by(directory: Location, step: int) -> str:
    try:
        return f"the last by {Manifest.read(stored.folder_of(directory, step)).writer or 'nobody'}"
    except CheckpointError:
        return "the last one damaged"
