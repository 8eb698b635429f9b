"""Exact metrics over the samples of all ranks, at the end of each epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfhybrid.callbacks.joined import Joined
from tfhybrid.errors import ConfigError
from tfhybrid.metrics import evaluate


class Evaluate(Joined):
    """Writes AUC, log loss, calibration and more, of all ranks together, into an epoch's logs.

    Put it behind `MetricAverage` and before callbacks that act on metrics: `EarlyStopping`,
    `ReduceLROnPlateau` and `Checkpoint` then see the same numbers on every rank, and History has
    them. It takes the place of `fit(validation_data=...)`.

    Args:
        dataset: This rank's batches, of whatever number; as `tfhybrid.metrics.evaluate` takes them.
        steps: Number of batches to take. Defaults to all.
        from_logits: Whether the model gives logits or probabilities; by output, where they differ.
        group: A feature whose samples are ranked among themselves, for `gauc`.
        prefix: Before each name. Defaults to `"val_"`, as Keras calls what it validates.

    Raises:
        DataError: On all ranks at the end of an epoch, as of `tfhybrid.metrics.evaluate`.
        ConfigError: On all ranks at the end of an epoch, if the logs have such a name already.

    Example:

    ```python
    model.fit(
        train,
        epochs=20,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.MetricAverage(),
            tfhybrid.callbacks.Evaluate(validation, group="user"),
            keras.callbacks.EarlyStopping("val_gauc", mode="max", patience=2),
        ],
    )
    ```
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        *,
        steps: int | None = None,
        from_logits: bool | Mapping[str, bool] = True,
        group: str | None = None,
        prefix: str = "val_",
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._options: dict[str, Any] = {
            "steps": steps,
            "from_logits": from_logits,
            "group": group,
        }
        self._prefix = prefix

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluates, and writes in place, so that the callbacks behind this one see it."""
        super().on_epoch_end(epoch, logs)
        scores = evaluate(self.model, self._dataset, **self._options)
        named = {f"{self._prefix}{name}": score for name, score in scores.items()}
        if logs is None:
            return
        if taken := sorted(named.keys() & logs.keys()):
            raise ConfigError(
                "Evaluate writes names that the epoch's logs have already: give it another prefix, "
                f"or leave out validation_data and Keras's metric. Received: {taken}"
            )
        logs.update(named)
