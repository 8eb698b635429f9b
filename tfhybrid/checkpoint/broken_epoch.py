"""Completion of an epoch that an earlier run did not finish."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.data.node_batches import NodeBatches
from tfhybrid.data.position import AnyPosition, Position, told
from tfhybrid.data.resumable import ResumableBatches
from tfhybrid.data.samples.fit_data import FitData, check_steps, take_opened
from tfhybrid.errors import ConfigError

_log = logging.getLogger("tfhybrid.checkpoint")

_OWN_OPTIONS = {"x", "y", "batch_size", "initial_epoch", "epochs", "steps_per_epoch"}


def finish_epoch(
    model: keras.Model,
    data: ResumableBatches | NodeBatches | tf.data.Dataset,
    position: Position,
    **options: Any,
) -> Position:
    """Trains the rest of an epoch that an earlier run did not complete; every rank must call it.

    `fit` then continues with whole epochs. A script may always call this between `restore` and
    `fit`: at the start of an epoch it does nothing.

    Args:
        model: Compiled model, restored from a checkpoint, or new if there was none.
        data: `tfhybrid.data.Batches`, `FileBatches` or `NodeBatches`; or the dataset of one epoch,
            which must yield the same batches in the same order as in the earlier run.
        position: Position returned by `restore`.
        **options: Other arguments of `fit`, such as `callbacks` and `verbose`.

    Returns:
        The position at which `fit` continues: the start of this epoch or of the next one. The rest
        of an epoch may be cut into other steps than before; see `ResumableBatches.at`.

    Raises:
        ConfigError: On all ranks: the position does not count epochs, is beyond the end of an
            epoch, or is within an epoch of other samples; the dataset is endless; or an option is
            one that this function sets itself.

    Example:

    ```python
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    position = tfhybrid.checkpoint.finish_epoch(model, batches, position, callbacks=callbacks)
    model.fit(
        batches.dataset(position.epoch, epochs=None),
        initial_epoch=position.epoch,
        epochs=10,
        steps_per_epoch=batches.steps_per_epoch,
        callbacks=callbacks,
    )
    ```
    """
    if not isinstance(position, Position):
        raise ConfigError(
            "finish_epoch needs a tfhybrid.data.Position(epoch, step); data with other positions "
            f"continue from them without it. Received: position={position!r}"
        )
    if reserved := _OWN_OPTIONS & options.keys():
        raise ConfigError(
            "finish_epoch trains the rest of one epoch and sets some options of fit itself: leave "
            f"them out. Received: {sorted(reserved)}"
        )
    if isinstance(data, ResumableBatches):
        with distributed.call("checkpoint.finish_epoch"):
            position = distributed.together(lambda: data.at(position))
        if (progress := _progress_of(model)) is not None:
            progress.position_data = data.position(0).data
    if position.starts_epoch:
        forget(model)
        return position
    following = Position(position.epoch + 1, 0)
    steps = _steps_of(data)
    if position.step > steps >= 0:
        raise ConfigError(
            f"An epoch of these data has {steps} steps. Received: a position at {told(position)}"
        )
    if position.step < steps or steps < 0:
        _fit_rest(model, data, position, options)
    forget(model)
    return following


def note(model: keras.Model, position: AnyPosition) -> None:
    """Records the position at which a restored model continues.

    If `fit` begins elsewhere nevertheless, `begin_epoch` logs a warning. The record is in this
    process's memory only.

    Args:
        model: Model that was restored.
        position: Position at which the model continues.
    """
    if (progress := _progress_of(model)) is not None:
        counted = isinstance(position, Position)
        progress.restored = (position, int(model.optimizer.iterations)) if counted else None


def forget(model: keras.Model) -> None:
    """Deletes the record that `note` made of a model, because the epoch is finished."""
    if (progress := _progress_of(model)) is not None:
        progress.restored = None


def restored_position(model: keras.Model) -> Position | None:
    """Returns the position of a restored model that was not trained since.

    Args:
        model: Model that may have been restored.

    Returns:
        The position that `note` recorded. `None` if it recorded none, if the model's optimizer has
        made a step since, or if `forget` has deleted the record.
    """
    progress = _progress_of(model)
    if progress is None or progress.restored is None:
        return None
    position, iterations = progress.restored
    return position if int(model.optimizer.iterations) == iterations else None


def begin_fit(model: keras.Model, params: Mapping[str, Any]) -> FitData | None:
    """Finds the data of tfhybrid that `fit` reads. Later positions count the steps of these data.

    Args:
        model: Model that `fit` trains.
        params: Attribute `params` of a callback.

    Returns:
        The data, or `None` if `fit` reads other data.

    Raises:
        ConfigError: `fit` does not read whole epochs of the data.
    """
    fit = _fit_of(model)
    progress = None if fit is None else fit.progress
    # Another callback of this `fit` may have asked.
    if progress is not None and progress.params is params:
        return progress.data
    if fit is not None:
        fit.callbacks.clear()  # of a `fit` that raised, whose `on_train_end` Keras has not called
    data = take_opened()
    if data is not None:
        check_steps(data, params.get("steps"))
    if progress is not None:
        progress.data, progress.params = data, params
    return data


def begin_at(model: keras.Model, position: Position) -> None:
    """Makes the next epoch of `fit` begin at a position, where another run stopped.

    Args:
        model: Model that `fit` trains, with a `tfhybrid.DistributedOptimizer`.
        position: Position in the data that `begin_fit` found.
    """
    progress = _progress_of(model)
    forget(model)
    progress.first_position = position


def begin_epoch(model: keras.Model, epoch: int) -> Position:
    """Returns the position at which an epoch of `fit` begins, and begins to read there.

    Logs a warning if the model was restored within an epoch that was not finished since.

    Args:
        model: Model that `fit` trains.
        epoch: Number of the epoch, from 0.
    """
    progress = _progress_of(model)
    if progress is None:
        return Position(epoch, 0)
    position = restored_position(model)
    progress.restored = None
    if position is not None and not position.starts_epoch and distributed.rank() == 0:
        _log.warning(
            "The model continues at %s, but fit begins epoch %d at its first step, so steps are "
            "trained twice or skipped. Use callbacks.Checkpoint(directory, resume=True), or finish "
            "the epoch first: "
            "position = tfhybrid.checkpoint.finish_epoch(model, batches, position, ...)",
            told(position),
            epoch,
        )
    first = progress.first_position
    if first is None or first.epoch != epoch:
        progress.first_position = None
        first = start_of(model, epoch)
    if progress.data is not None:
        progress.data.begin(*first)
    return first


def start_of(model: keras.Model, epoch: int) -> Position:
    """Returns the position at the start of an epoch of `fit`, in the data that it reads.

    Args:
        model: Model that `fit` trains.
        epoch: Number of the epoch, from 0.
    """
    progress = _progress_of(model)
    if progress is None:
        return Position(epoch, 0)
    if isinstance(progress.data, ResumableBatches):
        return progress.data.position(epoch * progress.data.steps_per_epoch)
    return Position(epoch, 0, progress.position_data)


def _fit_rest(
    model: keras.Model,
    data: ResumableBatches | NodeBatches | tf.data.Dataset,
    position: Position,
    options: dict[str, Any],
) -> None:
    if isinstance(data, ResumableBatches | NodeBatches):
        rest = data.dataset(*position)
    else:
        rest = data.skip(position.step)
    progress = _progress_of(model)
    if progress is not None:
        progress.restored, progress.first_position = None, position
    # The data are shuffled already; Keras would warn that it does not shuffle them.
    options = {"shuffle": False} | options
    try:
        model.fit(rest, initial_epoch=position.epoch, epochs=position.epoch + 1, **options)
    finally:
        if progress is not None:
            progress.first_position = None


def _steps_of(data: ResumableBatches | NodeBatches | tf.data.Dataset) -> int:
    """Returns the number of steps in an epoch; negative if it is unknown."""
    if isinstance(data, ResumableBatches | NodeBatches):
        return data.steps_per_epoch
    if not isinstance(data, tf.data.Dataset) or data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ConfigError(
            "finish_epoch needs tfhybrid.data.Batches, FileBatches, or a finite tf.data.Dataset of "
            f"one epoch. Received: {data!r}"
        )
    return int(data.cardinality())


def _progress_of(model: keras.Model) -> Any:
    """Returns the progress that the model's optimizer holds; `None` for one of another kind."""
    fit = _fit_of(model)
    return None if fit is None else fit.progress


def _fit_of(model: keras.Model) -> Any:
    step = getattr(getattr(model, "optimizer", None), "distributed_step", None)
    return None if step is None else step.fit
