"""Completion of an epoch that an earlier run did not finish."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.data.node_batches import NodeBatches
from tfhybrid.data.position import AnyPosition, Position, told
from tfhybrid.data.resumable import ResumableBatches
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
        The position at which `fit` continues: the start of this epoch or of the next one.

    Raises:
        ConfigError: The position does not count epochs, or is beyond the end of an epoch; the
            dataset is endless; or an option is one that this function sets itself.

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
    if position.step == 0:
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
    """Records that a restored model is within an epoch, which must be finished first.

    If `fit` begins another epoch nevertheless, `begin_epoch` logs a warning. A position at the
    start of an epoch deletes an earlier record. The record is in this process's memory only.

    Args:
        model: Model that was restored.
        position: Position at which the model continues.
    """
    if (step := _step_of(model)) is not None:
        step.fit.take_broken_off()
        if isinstance(position, Position) and position.step > 0:
            step.fit.break_off(position, int(model.optimizer.iterations))


def forget(model: keras.Model) -> None:
    """Deletes the record that `note` made of a model, because the epoch is finished."""
    if (step := _step_of(model)) is not None:
        step.fit.take_broken_off()


def begin_epoch(model: keras.Model, epoch: int) -> Position:
    """Returns the position at which an epoch of `fit` begins.

    Logs a warning if the model was restored within an epoch that was not finished since.

    Args:
        model: Model that `fit` trains.
        epoch: Number of the epoch, from 0.
    """
    step = _step_of(model)
    if step is None:
        return Position(epoch, 0)
    if (broken_off := step.fit.take_broken_off()) is not None:
        position, iterations = broken_off
        if int(model.optimizer.iterations) == iterations and distributed.rank() == 0:
            _log.warning(
                "The model continues at %s, but fit begins epoch %d at its first step, so steps "
                "are trained twice or skipped. Finish the epoch first: "
                "position = tfhybrid.checkpoint.finish_epoch(model, batches, position, ...)",
                told(position),
                epoch,
            )
    return Position(epoch, step.fit.steps_before)


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
    step = _step_of(model)
    # The data are shuffled already; Keras would warn that it does not shuffle them.
    options = {"shuffle": False} | options
    with contextlib.nullcontext() if step is None else step.fit.rest_of_epoch(position.step):
        model.fit(rest, initial_epoch=position.epoch, epochs=position.epoch + 1, **options)


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


def _step_of(model: keras.Model) -> Any:
    """Returns the model's `DistributedStep`, or `None` for an optimizer without one."""
    return getattr(getattr(model, "optimizer", None), "distributed_step", None)
