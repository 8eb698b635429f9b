"""Base class for batches from memory and from files: positions, and the dataset."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator

import tensorflow as tf

from tfhybrid.data.position import Position
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.sample_elements import dataset_of, element
from tfhybrid.data.samples.sharding import Shard, Steps
from tfhybrid.errors import ConfigError


class ResumableBatches(abc.ABC):
    """Batches of one rank that can be read from any position.

    Args:
        samples: Number of samples in an epoch, over all ranks.
        batch_size: Samples per rank and step.
        seed: Seed of the shuffle, not negative.
        drop_remainder: Whether to drop an incomplete last batch.
        shard: Number of this rank, and number of ranks. `None` for this Horovod rank.

    Raises:
        ConfigError: `batch_size` or `seed` is out of range, or there is no batch for every rank.
    """

    def __init__(
        self, samples: int, batch_size: int, seed: int, drop_remainder: bool, shard: Shard | None
    ) -> None:
        self._seed = seed
        self._shard = shard or Shard.of_this_process()
        self._steps = Steps(samples, batch_size, self._shard.size, drop_remainder)
        if seed < 0:
            raise ConfigError(f"seed must not be negative. Received: {seed}.")
        if self._steps.count == 0:
            raise ConfigError(
                f"An epoch needs a batch for each of {self._shard.size} ranks. Received: "
                f"{samples} samples for batches of {batch_size}, {drop_remainder=}."
            )

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch, the same on every rank."""
        return self._steps.count

    def position(self, steps: int) -> Position:
        """Returns the position after this many steps from the start of epoch 0."""
        return Position(*divmod(steps, self.steps_per_epoch))

    def batches(self, epoch: int = 0, step: int = 0, epochs: int | None = 1) -> Iterator[Clicks]:
        """Yields the batches of `dataset` as tables.

        Args:
            epoch: Epoch of the first batch. Default 0.
            step: Step of the first batch within its epoch. Default 0.
            epochs: Number of epochs, including the rest of the first one; `None` for no end.
                Default 1.

        Raises:
            ConfigError: At the first batch: there is no such position.
            DataError: A file is damaged.
        """
        self._check_position(epoch, step)
        numbers = itertools.count(epoch) if epochs is None else range(epoch, epoch + epochs)
        for current in numbers:
            yield from self._epoch(current, step if current == epoch else 0)

    def dataset(self, epoch: int = 0, step: int = 0, epochs: int | None = 1) -> tf.data.Dataset:
        """Returns the batches from a position on, always the same ones.

        Each epoch of an endless dataset is shuffled differently. Keras's `fit` would repeat a
        dataset of one epoch, so give it the endless one:

        ```python
        model.fit(batches.dataset(epochs=None), epochs=3, steps_per_epoch=batches.steps_per_epoch)
        model.evaluate(validation.dataset())
        ```

        To resume within an epoch, call `tfhybrid.checkpoint.finish_epoch` before `fit`.

        Args:
            epoch: Epoch of the first batch. Default 0.
            step: Step of the first batch within its epoch. Default 0.
            epochs: Number of epochs, including the rest of the first one; `None` for an endless
                dataset. Default 1.

        Returns:
            Elements `({name: [batch, length]}, label [batch, 1])`: int64 keys of each feature,
            float32 values of each dense column, float32 labels. A `Ragged` feature is a
            `tf.RaggedTensor` `[batch, None]`.

        Raises:
            ConfigError: There is no such position.
        """
        self._check_position(epoch, step)
        static = self._steps.batch_size if self._steps.drop_remainder else None
        batches = dataset_of(
            lambda: map(element, self.batches(epoch, step, epochs)), self._example(), static
        )
        cardinality = (
            tf.data.INFINITE_CARDINALITY if epochs is None else epochs * self.steps_per_epoch - step
        )
        return batches.apply(tf.data.experimental.assert_cardinality(cardinality)).prefetch(
            tf.data.AUTOTUNE
        )

    @abc.abstractmethod
    def _epoch(self, epoch: int, step: int) -> Iterator[Clicks]:
        """Yields the batches of an epoch, from a step on."""

    @abc.abstractmethod
    def _example(self) -> Clicks:
        """Returns a table with the columns that every batch has; its samples are not used."""

    def _check_position(self, epoch: int, step: int) -> None:
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ConfigError(
                f"A position needs epoch >= 0 and step in [0, {self.steps_per_epoch}). "
                f"Received: epoch {epoch}, step {step}."
            )
