"""Guard that lets only one job save into a directory, so that no job replaces another's steps.

A job knows the steps that existed when it restored, and those that it saves. Any other step comes
from another job, or from a run that this job does not continue. Used on rank 0 alone.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import weakref
from pathlib import Path

from tfhybrid.checkpoint import best, storage, stored
from tfhybrid.checkpoint.manifest import Manifest
from tfhybrid.checkpoint.storage import Location
from tfhybrid.errors import CheckpointError
from tfhybrid.job import current_job
from tfhybrid.job.job import Job

CURSOR = "checkpoint"  # name of the cursor that tracks the changed rows for deltas

_log = logging.getLogger("tfhybrid.checkpoint")

_INSTEAD = (
    "Continue from these with callbacks.Checkpoint(directory, resume=True), or with "
    "tfhybrid.checkpoint.restore(model, directory) before the first step; begin anew with "
    "Checkpoint(directory, fresh=True), which moves them aside; or choose another directory"
)
_BESIDE_ANOTHER = (
    "The other job has saved since this one began here, so it probably still runs: wait until it "
    "ends, or end it, and start this job again; or choose another directory"
)


@dataclasses.dataclass
class _History:
    """Steps of a directory that a job saved or found there, and the one it continues from."""

    steps: set[int] = dataclasses.field(default_factory=set)
    restored: int | None = None


# Histories of the directories of each job, by name.
_of_jobs: weakref.WeakKeyDictionary[Job, dict[str, _History]] = weakref.WeakKeyDictionary()


def writer() -> str:
    """Returns a description of this job for the manifest: the job's name and this host's name.

    Raises:
        NotInitializedError: No job is running.
    """
    return f"job {current_job().name} on {socket.gethostname()}"


def note_restored(directory: Location, restored: int | None, steps: list[int]) -> None:
    """Records that this job continues from the steps of a directory.

    If the directory has later steps than the restored one, the job's next `check` or `claim` of the
    directory logs a warning: a job that only evaluates has no need of it.

    Args:
        directory: Directory of the checkpoints.
        restored: Step from which the job continues; `None` if no step was chosen.
        steps: All steps of the directory.
    """
    history = _history_of(directory)
    history.steps.update(steps)
    history.restored = restored


def _warn_of_later(directory: Location, restored: int, steps: list[int]) -> None:
    later = [step for step in steps if step > restored]
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
    existing = check(directory)
    _history_of(directory).steps.add(step)
    return step in existing


def check(directory: Location) -> list[int]:
    """Checks that this job may save into a directory, and returns the steps in it.

    Args:
        directory: Directory of the checkpoints.

    Raises:
        CheckpointError: The directory has a step that this job has neither saved nor found there
            when it restored.
        OSError: The directory cannot be read.
        NotInitializedError: No job is running.
    """
    existing = stored.steps(directory)
    foreign = _foreign(directory, existing)
    if foreign:
        raise CheckpointError(
            f"{directory} has checkpoints that {writer()} has neither saved nor restored from: "
            f"steps {foreign}, {_written_by(directory, foreign[-1])}. Two jobs cannot save into "
            f"one directory. {_BESIDE_ANOTHER if is_begun(directory) else _INSTEAD}"
        )
    history = _history_of(directory)
    if history.restored is not None:
        _warn_of_later(directory, history.restored, existing)
        history.restored = None
    return existing


def is_begun(directory: Location) -> bool:
    """Returns whether this job has saved into a directory, or restored from it.

    Args:
        directory: Directory of the checkpoints.
    """
    return _name_of(directory) in _directories()


def move_aside(directory: Location) -> None:
    """Moves all checkpoints of a local directory into a new folder in it, if any is another job's.

    The folder is called `before-1`, `before-2` and so on. Nothing is deleted. The record of the
    best checkpoint moves along.

    Args:
        directory: Directory of the checkpoints.

    Raises:
        CheckpointError: The directory is not on a file system, so nothing in it can be renamed.
        OSError: The directory cannot be read, or a folder cannot be moved.
        NotInitializedError: No job is running.
    """
    existing = stored.steps(directory)
    if not _foreign(directory, existing):
        return
    if not isinstance(directory, Path):
        raise CheckpointError(
            "fresh=True renames folders, which a store of objects cannot. Move the checkpoints "
            f"yourself, or choose another directory. Received: {directory} with steps {existing}"
        )
    number = 1
    while (folder := directory / f"before-{number}").exists():
        number += 1
    folder.mkdir()
    record = directory / best.RECORD
    # The newest first, so that no delta is ever without its base.
    folders = [stored.folder_of(directory, step) for step in reversed(existing)]
    for path in [*([record] if record.exists() else []), *folders]:
        (directory / path.name).rename(folder / path.name)
    storage.sync(directory)
    _log.warning("%s: moved %d checkpoints to %s", directory, len(existing), folder)


def _foreign(directory: Location, existing: list[int]) -> list[int]:
    history = _directories().get(_name_of(directory), _History())
    return [step for step in existing if step not in history.steps]


def _history_of(directory: Location) -> _History:
    return _directories().setdefault(_name_of(directory), _History())


def _directories() -> dict[str, _History]:
    return _of_jobs.setdefault(current_job(), {})


def _name_of(directory: Location) -> str:
    return os.path.realpath(directory) if isinstance(directory, os.PathLike) else str(directory)


def _written_by(directory: Location, step: int) -> str:
    try:
        return f"the last by {Manifest.read(stored.folder_of(directory, step)).writer or 'nobody'}"
    except CheckpointError:
        return "the last one damaged"
