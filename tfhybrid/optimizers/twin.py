"""The native counterpart of a Keras optimizer, for the rows of tables."""

from __future__ import annotations

import dataclasses

from tensorflow import keras

from tfhybrid.config.table_optimizers import (
    SGD,
    Adagrad,
    Adam,
    Ftrl,
    RMSprop,
    SparseOptimizer,
)
from tfhybrid.errors import UnsupportedError


def twin(optimizer: keras.optimizers.Optimizer) -> SparseOptimizer:
    """Returns the native counterpart of a Keras optimizer. It follows the Keras learning rate.

    Args:
        optimizer: Optimizer of `keras.optimizers`: `SGD`, `Adagrad`, `Adam`, `AdamW`, `RMSprop`, or
            `Ftrl` with the default `learning_rate_power`.

    Raises:
        UnsupportedError: The optimizer has no counterpart. The message lists those that have one.

    Example:

    >>> import keras
    >>> twin(keras.optimizers.Adagrad(0.05)).epsilon
    1e-07
    """
    counterpart = _twin_of(optimizer)
    if counterpart is None:
        raise UnsupportedError(
            "Tables without their own optimizer need a Keras optimizer with a native counterpart: "
            "SGD, Adagrad, Adam, AdamW, RMSprop, or Ftrl with learning_rate_power=-0.5. To use "
            "another one for the dense weights, set "
            "TableConfig(optimizer=tfhybrid.optimizers.Adagrad(...)). "
            f"Received: {type(optimizer).__name__}"
        )
    return dataclasses.replace(counterpart, weight_decay=float(optimizer.weight_decay or 0.0))


def _twin_of(optimizer: keras.optimizers.Optimizer) -> SparseOptimizer | None:
    match optimizer:
        case keras.optimizers.SGD():
            return SGD(None, optimizer.momentum, optimizer.nesterov and optimizer.momentum > 0)
        case keras.optimizers.Adagrad():
            return Adagrad(None, optimizer.initial_accumulator_value, optimizer.epsilon)
        case keras.optimizers.Adam() | keras.optimizers.AdamW():
            moments = optimizer.beta_1, optimizer.beta_2, optimizer.epsilon
            return Adam(None, *moments, optimizer.amsgrad)
        case keras.optimizers.RMSprop():
            decays = optimizer.rho, optimizer.momentum, optimizer.epsilon
            return RMSprop(None, *decays, optimizer.centered)
        case keras.optimizers.Ftrl() if optimizer.learning_rate_power == -0.5:
            return Ftrl(
                None,
                optimizer.initial_accumulator_value,
                optimizer.l1_regularization_strength,
                optimizer.l2_regularization_strength,
                optimizer.l2_shrinkage_regularization_strength,
                optimizer.beta,
            )
    return None
