"""An epoch that a run broke off: what is left of it is trained, and counted, as the rest of it."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.data.position import AnyPosition, Position, told
from tfhybrid.data.resumable import ResumableBatches
from tfhybrid.errors import ConfigError

_log = logging.getLogger("tfhybrid.checkpoint")

_OWN_OPTIONS = {"x", "y", "batch_size", "initial_epoch", "epochs", "steps_per_epoch"}


def finish_epoch(
    model: keras.Model,
    data: ResumableBatches | tf.data.Dataset,
    position: Position,
    **options: Any,
) -> Position:
    """Trains what is left of the epoch in which a run broke off; every rank must call it.

    `fit` then goes on with whole epochs. At the start of an epoch there is nothing to finish, so
    a script may always call this between `restore` and `fit`.

    Args:
        model: Restored, or fresh where there was nothing to restore.
        data: `tfhybrid.data.Batches` or `FileBatches`; or the dataset of one epoch, which must give
            the same batches in the same order as it did in the run before.
        position: What `restore` returned.
        **options: What `fit` gets besides, such as `callbacks` and `verbose`.

    Returns:
        Where `fit` goes on: the start of this epoch, or of the one after it.

    Raises:
        ConfigError: The position is not one in epochs, or lies beyond the end of an epoch; the
            dataset has no end; or an option is one of those that are known here.

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
            "finish_epoch wants a tfhybrid.data.Position(epoch, step); data of another kind go on "
            f"from a position by themselves. Received: position={position!r}"
        )
    if known := _OWN_OPTIONS & options.keys():
        raise ConfigError(
            "finish_epoch trains one epoch from the position on, and takes the other options of "
            f"fit. Received: {sorted(known)}"
        )
    if position.step == 0:
        return position
    following = Position(position.epoch + 1, 0)
    steps = _steps_of(data)
    if position.step > steps >= 0:
        raise ConfigError(
            f"An epoch has {steps} steps of these data. Received: a position at {told(position)}"
        )
    if position.step < steps or steps < 0:
        _fit_rest(model, data, position, options)
    forget(model)
    return following


def note(model: keras.Model, position: AnyPosition) -> None:
    """Notes where a restored model goes on, if that is within an epoch."""
    if (step := _step_of(model)) is not None:
        within = isinstance(position, Position) and position.step > 0
        step.broken_off = (position, int(model.optimizer.iterations)) if within else None


def forget(model: keras.Model) -> None:
    """Forgets it: the epoch is finished."""
    if (step := _step_of(model)) is not None:
        step.broken_off = None


def begin_epoch(model: keras.Model, epoch: int) -> Position:
    """Returns where an epoch of `fit` begins; warns if a broken one is not finished first."""
    step = _step_of(model)
    if step is None:
        return Position(epoch, 0)
    if step.broken_off is not None:
        position, iterations = step.broken_off
        step.broken_off = None
        if int(model.optimizer.iterations) == iterations and distributed.rank() == 0:
            _log.warning(
                "The model goes on at %s, but fit begins epoch %d with its first step, so steps "
                "are trained twice or left out. Finish the epoch first: "
                "position = tfhybrid.checkpoint.finish_epoch(model, batches, position, ...)",
                told(position),
                epoch,
            )
    return Position(epoch, step.steps_before)


def _fit_rest(
    model: keras.Model,
    data: ResumableBatches | tf.data.Dataset,
    position: Position,
    options: dict[str, Any],
) -> None:
    if isinstance(data, ResumableBatches):
        rest = data.dataset(*position)
    else:
        rest = data.skip(position.step)
    step = _step_of(model)
    if step is not None:
        step.broken_off, step.steps_before = None, position.step
    # Data come shuffled; Keras would say at each call that it does not shuffle them.
    options = {"shuffle": False} | options
    try:
        model.fit(rest, initial_epoch=position.epoch, epochs=position.epoch + 1, **options)
    finally:
        if step is not None:
            step.steps_before = 0


def _steps_of(data: ResumableBatches | tf.data.Dataset) -> int:
    """Returns the number of steps in an epoch; negative where it is not known."""
    if isinstance(data, ResumableBatches):
        return data.steps_per_epoch
    if not isinstance(data, tf.data.Dataset) or data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ConfigError(
            "finish_epoch wants tfhybrid.data.Batches, FileBatches, or a tf.data.Dataset of one "
            f"epoch, which ends. Received: {data!r}"
        )
    return int(data.cardinality())


def _step_of(model: keras.Model) -> Any:
    """Returns the model's `DistributedStep`; `None` where its optimizer is one of one rank."""
    return getattr(getattr(model, "optimizer", None), "distributed_step", None)
