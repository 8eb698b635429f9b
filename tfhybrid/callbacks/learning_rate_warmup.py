"""Learning-rate warm-up."""

from __future__ import annotations

import numbers
from typing import Any

from typing_extensions import override

from tfhybrid import distributed
from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.errors import ConfigError


class LearningRateWarmup(CollectiveCallback):
    """Callback that raises the learning rate linearly over the first steps (Goyal et al., 2017).

    The Keras optimizer's rate, which tables without a rate of their own follow, and the tables' own
    rates rise together. The optimizer counts the steps, so a resumed job continues its warm-up.

    Args:
        learning_rate: Rate of the Keras optimizer after the warm-up.
        steps: Length of the warm-up in steps, at least 1.
        start: Factor of the rates at the first step, from 0 to 1. Defaults to 1 / number of ranks.

    Raises:
        ConfigError: `steps` or `start` is out of range; or, when training begins, the optimizer's
            rate is a schedule.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.LearningRateWarmup(0.01, steps=1000)])
    ```
    """

    def __init__(self, learning_rate: float, *, steps: int, start: float | None = None) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.steps = steps
        self.start = 1.0 / distributed.size() if start is None else start
        if steps < 1 or not 0.0 <= self.start <= 1.0:
            raise ConfigError(
                "LearningRateWarmup needs steps >= 1 and 0 <= start <= 1. "
                f"Received: steps={steps}, start={start}"
            )

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        rate = self.model.optimizer.get_config()["learning_rate"]
        if not isinstance(rate, numbers.Real):
            raise ConfigError(
                "LearningRateWarmup cannot set the rate of a schedule: put the warm-up into the "
                f"schedule. Received: {rate}"
            )

    @override
    def before_step(self) -> None:
        optimizer = self.model.optimizer
        done = int(optimizer.iterations)
        if done > self.steps:
            return
        factor = self.start + (1.0 - self.start) * min(done / self.steps, 1.0)
        optimizer.learning_rate = self.learning_rate * factor
        sparse_update = getattr(optimizer, "sparse_update", None)
        if sparse_update is not None:
            sparse_update.rate_scale.assign(factor)
