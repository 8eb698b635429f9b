"""Batches of data nodes from any position, for jobs that restore a checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid import data
from tfhybrid._deprecated import renamed_arguments
from tfhybrid.data.layer_calls import Layer
from tfhybrid.data.position import Position
from tfhybrid.data_nodes.key_links import renamed_delivery
from tfhybrid.errors import ConfigError


class NodeBatches:
    """The batches of `from_nodes` from any position, for `tfhybrid.checkpoint.finish_epoch`.

    A position counts the steps of a trainer, whichever data node sent their batches. So a job can
    resume with any number of data nodes, or with none. No batch is trained twice, and none is lost.

    Args:
        make_dataset: Function that makes the data set (see `from_nodes`). It must return the same
            batches in each run.
        layers: One or several collections that look up features.
        **options: Further arguments of `from_nodes`, except `position`.

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

    @renamed_arguments(join="delivery", most_bytes="max_bytes", share="divide_by")
    def __init__(
        self, make_dataset: Callable[..., Any], layers: Layer | Sequence[Layer], **options: Any
    ) -> None:
        if "delivery" in options:
            options["delivery"] = renamed_delivery(options["delivery"])
        self._make = functools.partial(data.from_nodes, make_dataset, layers, **options)

    @functools.cached_property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch; negative if it is not known.

        Raises:
            ConfigError: The data set is endless.
            TfhybridError: An argument of `from_nodes` is invalid, no job is running, or the data
                nodes cannot make the data set.
        """
        dataset = self.dataset()
        if not isinstance(dataset, tf.data.Dataset):
            return len(dataset) if hasattr(dataset, "__len__") else int(tf.data.UNKNOWN_CARDINALITY)
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ConfigError(
                "A data set with positions must have epochs. Received: one without end"
            )
        return int(dataset.cardinality())

    def dataset(self, epoch: int = 0, step: int = 0) -> Any:
        """Returns the batches from a position on, like `from_nodes`.

        Args:
            epoch: Epoch of the first batch, from 0. Each further iteration reads the next epoch.
            step: Step of the first batch within its epoch. If it is not 0 (the default), each
                iteration reads only the rest of that epoch.

        Raises:
            ConfigError: The position is negative, or another argument of `from_nodes` is invalid.
            TfhybridError: The data nodes cannot make the data set.
        """
        return self._make(position=Position(epoch, step))
