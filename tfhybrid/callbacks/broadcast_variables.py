"""Broadcast of dense weights from one rank to all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from tfhybrid import distributed
from tfhybrid._keras import state_of
from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.layers.table_proxy import TableProxy


class BroadcastVariables(CollectiveCallback):
    """Callback that copies dense weights and optimizer state of one rank to all ranks at the start.

    Every rank must use it. Nothing is copied if the ranks have already trained together or restored
    the same checkpoint. Values that belong to each rank, such as the statistics of batch
    normalization, then stay.

    Tables are not copied, because their initial values are the same on every rank by construction.
    Each rank keeps the state of its random generators, so dropout differs from rank to rank.

    If the model is built, the optimizer's variables are created here, before the first step. If
    they were created while TensorFlow traces the step, it would trace the step twice.

    Args:
        root: Rank whose values are copied. Defaults to 0.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.BroadcastVariables()])
    ```
    """

    def __init__(self, root: int = 0) -> None:
        super().__init__()
        self.root = root

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        if self.model.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self._broadcast()

    @distributed.call("callbacks.BroadcastVariables")
    def _broadcast(self) -> None:
        steps = set(distributed.allgather_object(int(self.model.optimizer.iterations)))
        if len(steps) == 1 and steps != {0}:
            return
        # The integer variables of a model are states of random generators.
        weights = [
            weight
            for weight in self.model.variables
            if not isinstance(weight, TableProxy) and tf.as_dtype(weight.dtype).is_floating
        ]
        variables = [*weights, *state_of(self.model.optimizer)]
        mine = [np.asarray(variable) for variable in variables]
        values = distributed.broadcast_object(mine, self.root)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
