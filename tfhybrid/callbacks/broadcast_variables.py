"""Dense weights from rank 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._keras import state_of
from tfhybrid.callbacks.joined import Joined
from tfhybrid.layers import TableProxy


class BroadcastVariables(Joined):
    """Gives every rank the dense weights and optimizer state of one rank, when training begins.

    Ranks that have trained together already, or restored the same checkpoint, have them: then
    nothing is sent, and what is each rank's own (statistics of batch normalisation) stays.

    Tables need none of this: their initial values are the same on every rank by construction. The
    states of random generators stay each rank's own, so that dropout differs from rank to rank.

    A model that knows its variables gets the optimizer's state here, before the first step:
    variables that are created while TensorFlow traces the step make it trace the step twice.

    Args:
        root: The rank whose values all take. Defaults to 0.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.BroadcastVariables()])
    ```
    """

    def __init__(self, root: int = 0) -> None:
        super().__init__()
        self.root = root

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Sends the values; every rank must come here."""
        super().on_train_begin(logs)
        if self.model.built:
            self.model.optimizer.build(self.model.trainable_variables)
        steps = set(distributed.allgather_object(int(self.model.optimizer.iterations)))
        if len(steps) == 1 and steps != {0}:
            return
        # Whole numbers among a model's variables are states of random generators.
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
