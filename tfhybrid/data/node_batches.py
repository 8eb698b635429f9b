"""Batches of data nodes from any position on, for jobs that continue from checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid import data
from tfhybrid.data.announced import Layer
from tfhybrid.data.position import Position
from tfhybrid.errors import ConfigError


class NodeBatches:
    """The batches of `from_nodes` from any position on, for `tfhybrid.checkpoint.finish_epoch`.

    A position counts steps, which all data nodes together have sent a trainer. So a job continues
    with any number of data nodes, or without; no batch is trained twice, and none is lost.

    Args:
        make_dataset: As of `from_nodes`. It must return the same batches in each run.
        layers: As of `from_nodes`.
        **options: Further arguments of `from_nodes`.

    Example:

    ```python
    batches = tfhybrid.data.NodeBatches(train_data, model.embeddings)
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    position = tfhybrid.checkpoint.finish_epoch(model, batches, position, callbacks=callbacks)
    model.fit(
        batches.dataset(position.epoch),
        initial_epoch=position.epoch,
        epochs=10,
        callbacks=callbacks,
    )
    ```
    """

    def __init__(
        self, make_dataset: Callable[..., Any], layers: Layer | Sequence[Layer], **options: Any
    ) -> None:
        self._make = functools.partial(data.from_nodes, make_dataset, layers, **options)

    @functools.cached_property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch; negative if it is not known.

        Raises:
            ConfigError: There is no end.
        """
        made = self.dataset()
        if not isinstance(made, tf.data.Dataset):
            return len(made) if hasattr(made, "__len__") else int(tf.data.UNKNOWN_CARDINALITY)
        if made.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ConfigError("A data set with positions has epochs. Received: one without end")
        return int(made.cardinality())

    def dataset(self, epoch: int = 0, step: int = 0) -> Any:
        """Returns the batches from a position on.

        Args:
            epoch: Of the first batch. Each time it is begun again, the epoch is the next one.
            step: Of the first batch in that epoch. If it is not 0, these are the rest of that epoch
                alone.

        Raises:
            ConfigError: As of `from_nodes`.
        """
        return self._make(position=Position(epoch, step))
