"""Exact metrics over the samples of all ranks at the end of each epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from typing_extensions import override

from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.errors import ConfigError
from tfhybrid.metrics import evaluate


class Evaluate(CollectiveCallback):
    """Callback that writes AUC, log loss and more, over all ranks' samples, into an epoch's logs.

    Every rank must use it. Put it after `MetricAverage` and before callbacks that act on metrics:
    `EarlyStopping`, `ReduceLROnPlateau` and `Checkpoint` then see the same numbers on every rank,
    and `History` records them. It replaces `fit(validation_data=...)`.

    Args:
        dataset: Batches of this rank, any number of them; see `tfhybrid.metrics.evaluate`.
        steps: Number of batches to take. Defaults to all.
        from_logits: Whether the model returns logits or probabilities; a dictionary by output if
            outputs differ. Defaults to logits.
        group: Feature by which samples are grouped for `gauc`. Without it there is no `gauc`.
        prefix: Prefix of each metric's name. Defaults to `"val_"`, as in Keras.
        outputs: Names of the outputs to score. Defaults to all outputs with a label.

    Raises:
        DataError: At the end of an epoch; see `tfhybrid.metrics.evaluate`.
        ConfigError: On all ranks at the end of an epoch, if the logs already have such a name.
        StoreError: At the end of an epoch, if the samples of another rank are malformed.

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
        outputs: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._options: dict[str, Any] = {
            "steps": steps,
            "from_logits": from_logits,
            "group": group,
            "outputs": outputs,
        }
        self._prefix = prefix

    @override
    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        scores = evaluate(self.model, self._dataset, **self._options)
        named = {f"{self._prefix}{name}": score for name, score in scores.items()}
        if logs is None:
            return
        if taken := sorted(named.keys() & logs.keys()):
            raise ConfigError(
                "The epoch's logs already have names that Evaluate writes. Give it another prefix, "
                f"or remove validation_data and Keras's metric. Received: {taken}"
            )
        logs.update(named)
