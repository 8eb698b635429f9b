"""One job saves into a directory: what others wrote there is neither replaced nor pruned."""

from __future__ import annotations

import contextlib
import resource
import shutil
from pathlib import Path

import pytest
from tensorflow import keras

import tfhybrid
from tests.parallel.checkpointed import START, fit, start
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.stored import folder_of
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("job")


def trained(directory: Path) -> keras.Model:
    """A job that has saved steps 2 and 4."""
    model = start()
    fit(model, 1, callbacks=[tfhybrid.callbacks.Checkpoint(directory, save_freq=2)])
    return model


def appears(directory: Path, step: int) -> None:
    """Lets a checkpoint appear that another job might have written."""
    if distributed.rank() == 0:
        shutil.copytree(folder_of(directory, 4), folder_of(directory, step))
    distributed.barrier()


def test_a_job_that_did_not_resume_from_there_is_refused(directory):
    trained(directory)
    model = start()
    fit(model, 1)
    with pytest.raises(CheckpointError, match=r"steps \[2, 4\], the last by job \w+ on .*restore"):
        checkpoint.save(model, directory, Position(1, 0), max_to_keep=1)
    assert checkpoint.steps(directory) == [2, 4]
    distributed.barrier()
    assert checkpoint.restore(model, directory) == Position(0, 4)
    fit(model, 2, Position(1, 0))
    checkpoint.save(model, directory, Position(2, 0), max_to_keep=1)
    distributed.barrier()
    assert checkpoint.steps(directory) == [8]


def test_of_two_jobs_that_run_at_once_one_is_refused(directory):
    model = trained(directory)
    appears(directory, 6)
    fit(model, 2, Position(1, 0))
    with pytest.raises(CheckpointError, match=r"steps \[6\].*probably still runs: wait until"):
        checkpoint.save(model, directory, Position(2, 0))
    distributed.barrier()
    assert checkpoint.steps(directory) == [2, 4, 6]


def test_later_steps_than_the_one_restored_are_warned_of(directory, caplog):
    trained(directory)
    model = start()
    checkpoint.restore(model, directory, step=2)
    assert "later checkpoints" not in caplog.text  # the job may only evaluate
    fit(model, 1, Position(0, 2))
    checkpoint.save(model, directory, START)  # step 4, in place of the other
    text = f"has later checkpoints than the restored step 2: {[4]}"
    assert caplog.text.count(text) == (distributed.rank() == 0)
    checkpoint.save(model, directory, START)
    assert caplog.text.count(text) == (distributed.rank() == 0)


@contextlib.contextmanager
def no_new_files():
    """No descriptor is free, as in a process with too many connections."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.world_size
def test_training_survives_a_directory_that_cannot_be_read(directory):
    model = trained(directory)
    manager = checkpoint.CheckpointManager(model, directory)
    fit(model, 2, Position(1, 0))
    with no_new_files() if distributed.rank() == 0 else contextlib.nullcontext():
        manager.save(Position(2, 0))
    with pytest.raises(CheckpointError, match=r"could not be written|Too many open files"):
        manager.wait()
    assert checkpoint.steps(directory) == [2, 4]
    manager.save(Position(2, 0))
    manager.wait()
    distributed.barrier()
    assert checkpoint.steps(directory) == [2, 4, 8]


def test_what_a_killed_save_left_goes_with_the_next(directory):
    model = trained(directory)
    left = [directory / f".step-{step:010d}.01234567" for step in (3, 9)]
    if distributed.rank() == 0:
        for folder in left:
            folder.mkdir()
    distributed.barrier()
    checkpoint.save(model, directory, START)
    distributed.barrier()
    assert not any(folder.exists() for folder in left)
