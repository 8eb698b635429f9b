"""Start of `fit` where an earlier run stopped, by Keras's own callback for that."""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

from tensorflow import keras

from tfhybrid import checkpoint, distributed
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.checkpoint import broken_epoch, kept_model
from tfhybrid.data.position import Position, told
from tfhybrid.data.resumable import ResumableBatches
from tfhybrid.data.samples.fit_data import FitData
from tfhybrid.errors import ConfigError

RESUME = (False, True, "memory")


def check_keras(resume: bool | str) -> None:
    """Checks that `Checkpoint(resume=...)` is possible.

    Args:
        resume: Argument `resume` of the callback.

    Raises:
        ConfigError: The argument is invalid, or Keras is older than 3.
    """
    if resume not in RESUME:
        raise ConfigError(f"resume must be one of {RESUME}. Received: {resume!r}")
    if resume and not IS_KERAS_3:
        raise ConfigError(
            "resume= needs Keras 3: Keras 2 cannot begin fit at an epoch that a callback chooses. "
            "Use tfhybrid.checkpoint.restore and finish_epoch. Received: Keras 2"
        )


def resume(
    model: keras.Model,
    manager: checkpoint.CheckpointManager,
    data: FitData | None,
    *,
    memory: bool,
) -> Position | None:
    """Restores a model and makes `fit` begin where the job stopped; every rank must call it.

    Call it in `on_train_begin`. A model that this job has restored and not trained since is not
    restored again. A model that this job has trained, but has neither saved to the manager's
    directory nor restored from it, is overwritten by the newest checkpoint there.

    Args:
        model: Model that `fit` trains, compiled with a `tfhybrid.DistributedOptimizer`.
        manager: Manager of the checkpoints.
        data: Data that `fit` reads. `None` if `fit` reads data that cannot begin at a position,
            which is an error unless this function returns `None`.
        memory: Whether the job must be able to resume from memory.

    Returns:
        The position at which `fit` begins: the start of epoch 0 if there is no checkpoint. `None`
        if this job has already saved to the manager's directory or restored from it, and has
        trained the model or finished the epoch since: then nothing is restored, and `fit` begins
        at the epoch that its arguments say.

    Raises:
        ConfigError: On all ranks: the data cannot begin at the position, or the job was not started
            with `resume="memory"` although `memory` is true.
        CheckpointError: On all ranks: the checkpoint cannot be restored.
        StoreError: On all ranks: a table cannot be opened, or a rank has no memory for its state.
            Also on ranks that did not fail, if reading a file of the data failed on others.
        OSError: The directory, or a file of the data, cannot be read.
    """
    if memory:
        kept_model.require_kept()
    position = broken_epoch.restored_position(model)
    if position is None:
        if manager.begun():
            return None
        position = manager.restore()
    position = distributed.together(lambda: _continued(data, position))
    broken_epoch.begin_at(model, position)
    begin_fit_in_epoch(model, position.epoch)
    return position


def begin_fit_in_epoch(model: keras.Model, epoch: int) -> None:
    """Makes the `fit` that is beginning start with an epoch, whatever its `initial_epoch` is.

    `keras.callbacks.BackupAndRestore` tells `fit` so. It saves and loads weights as well, and
    `_Unsaved` leaves that out.

    Args:
        model: Model that `fit` trains, in `on_train_begin`.
        epoch: Number of the epoch, from 0; 0 leaves the choice to `initial_epoch` again.
    """
    with tempfile.TemporaryDirectory() as folder:
        starter = keras.callbacks.BackupAndRestore(folder)
        starter.set_model(_Unsaved(model))
        starter.on_epoch_end(epoch - 1)
        starter.on_train_begin()


def note_in_memory(model: keras.Model, position: Position | None = None) -> None:
    """Records position and random generators before a step, if the job keeps its state in memory.

    Args:
        model: Model that `fit` trains.
        position: Position in the data at the start of an epoch. Default: the last one, advanced.
    """
    keeper = kept_model.keeper_of(model)
    if keeper is not None:
        keeper.note(position)


def _continued(data: FitData | None, position: Any) -> Position:
    """Returns the position at which the data continue."""
    if not isinstance(data, ResumableBatches):
        raise ConfigError(
            "resume=True needs data that fit can read from any step on: give tfhybrid.data.Batches "
            "or FileBatches themselves to fit, not their dataset(). For other data, use "
            "tfhybrid.checkpoint.restore and finish_epoch instead of resume=True, as "
            "help(tfhybrid.checkpoint.finish_epoch) shows. Received: other data, and a position at "
            f"{told(position)}"
        )
    if not isinstance(position, Position):
        raise ConfigError(
            "resume=True needs checkpoints with a tfhybrid.data.Position(epoch, step). "
            f"Received: a position at {told(position)}"
        )
    return data.at(position)


class ShortEpoch:
    """End of an epoch of which `fit` trains the rest, before Keras asks the data for more.

    Keras takes a batch within the graph of a step. Without one, parts of the step would run all the
    same, and draw random numbers. Keras warns of an epoch that ends early as soon as it has ended,
    so its warning is silenced from then until `end` alone: `fit` may fail before that.
    """

    def __init__(self) -> None:
        self._steps: int | None = None
        self._filters: warnings.catch_warnings[Any] | None = None

    def begin(self, steps: int) -> None:
        """Expects the end of the epoch.

        Args:
            steps: Number of steps that are left in the epoch.
        """
        self.end()
        self._steps = steps

    def check(self, batch: int) -> None:
        """Ends the epoch, if it is over, and silences Keras's warning about it.

        Args:
            batch: Number of the batch that `fit` is about to take, from 0.

        Raises:
            StopIteration: No batch is left; Keras ends the epoch then.
        """
        if self._steps is not None and batch >= self._steps:
            self.end()
            self._filters = warnings.catch_warnings()
            self._filters.__enter__()
            warnings.filterwarnings("ignore", message="Your input ran out of data")
            raise StopIteration

    def end(self) -> None:
        """Lets Keras warn again. Does nothing if it may."""
        self._steps = None
        if self._filters is not None:
            self._filters.__exit__(None, None, None)
            self._filters = None


class _Unsaved:
    """A model whose weights are not saved and loaded, and which else is the given one."""

    def __init__(self, model: keras.Model) -> None:
        object.__setattr__(self, "_model", model)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_model"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_model"), name, value)

    def save_weights(self, *_args: Any, **_options: Any) -> None:
        """Does nothing."""

    def load_weights(self, *_args: Any, **_options: Any) -> None:
        """Does nothing."""
