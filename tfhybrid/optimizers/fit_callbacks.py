"""Check of the callbacks of a running `fit`, before its first step.

Keras gives an optimizer or a callback no list of the callbacks, so the list is looked for in the
calls that lead to the check. Where it is not found, the callbacks are refused when they save.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import UnsupportedError
from tfhybrid.layers.table_proxy import TableProxy, refuse_to_save


# AutoGraph would turn the search for the callbacks into a part of the step.
@tf.autograph.experimental.do_not_convert
def refuse_incomplete_savers(proxies: Sequence[TableProxy]) -> None:
    """Refuses callbacks of Keras that save or restore weights, because they leave out the tables.

    Args:
        proxies: Proxies of the model's tables.

    Raises:
        UnsupportedError: `fit` was called with such a callback.
    """
    if not proxies:
        return
    for callback in _callbacks_of_fit():
        error = _error_of(callback, proxies)
        if error is not None:
            # Keras would keep the function whose tracing fails here.
            callback.model.train_function = None
            raise error


def _error_of(callback: Any, proxies: Sequence[TableProxy]) -> UnsupportedError | None:
    if isinstance(callback, keras.callbacks.ModelCheckpoint | keras.callbacks.BackupAndRestore):
        return refuse_to_save([proxy.table.name for proxy in proxies])
    if isinstance(callback, keras.callbacks.EarlyStopping) and callback.restore_best_weights:
        return proxies[0].refuse("copied")
    return None


def _callbacks_of_fit() -> Sequence[Any]:
    # Of Keras's own functions alone: to read the variables of a user's would keep them alive.
    package = keras.callbacks.CallbackList.__module__.partition(".")[0]
    frame = inspect.currentframe()
    try:
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] == package:
                for value in frame.f_locals.values():
                    if isinstance(value, keras.callbacks.CallbackList):
                        return list(value.callbacks)
            frame = frame.f_back
    finally:
        del frame
    return []
