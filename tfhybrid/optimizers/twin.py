"""From a Keras optimizer to the native one that does the same to a table's rows."""

from __future__ import annotations

import keras

from tfhybrid.errors import UnsupportedError
from tfhybrid.optimizers.sparse import SGD, Adagrad, Adam, SparseOptimizer


def twin(optimizer: keras.optimizers.Optimizer) -> SparseOptimizer:
    """Returns the native twin of a Keras optimizer; it follows the Keras learning rate.

    Args:
        optimizer: `keras.optimizers.SGD` without momentum, `Adagrad`, or `Adam` without AMSGrad;
            without weight decay.

    Raises:
        UnsupportedError: It has no twin; the message lists those that have.

    Example:

    >>> import keras
    >>> twin(keras.optimizers.Adagrad(0.05)).epsilon
    1e-07
    """
    if not optimizer.weight_decay:
        if isinstance(optimizer, keras.optimizers.AdamW):
            pass  # decays by default; a subclass of Adam, so it comes first
        elif isinstance(optimizer, keras.optimizers.SGD) and not optimizer.momentum:
            return SGD()
        elif isinstance(optimizer, keras.optimizers.Adagrad):
            return Adagrad(None, optimizer.initial_accumulator_value, optimizer.epsilon)
        elif isinstance(optimizer, keras.optimizers.Adam) and not optimizer.amsgrad:
            return Adam(None, optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    raise UnsupportedError(
        "Tables without an optimizer of their own take the twin of the Keras optimizer: SGD "
        "without momentum, Adagrad, or Adam without amsgrad, and without weight_decay. Give "
        "TableConfig(optimizer=tfhybrid.optimizers.Adagrad(...)) to keep another one for the "
        f"dense weights. Received: {type(optimizer).__name__}"
    )
