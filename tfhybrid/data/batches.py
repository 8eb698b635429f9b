"""Batches of a table in memory: sharded by rank, shuffled by seed, resumable at any step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfhybrid.data.clicks import Clicks
from tfhybrid.data.elements import dataset_of, element
from tfhybrid.data.sharding import Shard, Steps
from tfhybrid.errors import ConfigError


class Position(NamedTuple):
    """A place in the training data: `step` batches of epoch `epoch` have been used."""

    epoch: int = 0
    step: int = 0


class Batches:
    """Batches of one rank: the same global batches whatever the number of ranks.

    An epoch is a permutation of all samples that follows from (seed, epoch) alone. It is cut into
    global batches of `batch_size * size` samples, and each rank takes a contiguous part of each: no
    sample is lost or repeated, and all ranks have the same number of steps. The last global batch
    of an epoch is shared out evenly; where it would hold fewer samples than ranks, it joins the one
    before it.

    Args:
        clicks: The samples of all ranks; every rank holds the same table.
        batch_size: Samples per rank and step.
        seed: Seed of the shuffle, not negative, the same on every rank.
        shuffle: Whether to shuffle; else batches come in the order of the table.
        drop_remainder: Whether to leave out a last batch that is not full; the dataset's batch
            dimension is static then.
        shard: Which rank this is, and of how many. Defaults to this Horovod rank.

    Raises:
        ConfigError: `batch_size` or `seed` is out of range, or there is no batch for every rank.

    Example:

    >>> import numpy as np
    >>> clicks = Clicks({"user": np.arange(10)}, np.zeros(10, np.float32))
    >>> batches = Batches(clicks, 2, seed=1, shuffle=False, shard=Shard(rank=1, size=2))
    >>> batches.steps_per_epoch
    3
    >>> [users["user"][:, 0].numpy().tolist() for users, _ in batches.dataset()]
    [[2, 3], [6, 7], [9]]
    """

    def __init__(
        self,
        clicks: Clicks,
        batch_size: int,
        *,
        seed: int,
        shuffle: bool = True,
        drop_remainder: bool = False,
        shard: Shard | None = None,
    ) -> None:
        self._clicks = clicks
        self._seed = seed
        self._shuffle = shuffle
        self._shard = shard or Shard.of_this_process()
        self._steps = Steps(len(clicks), batch_size, self._shard.size, drop_remainder)
        if seed < 0:
            raise ConfigError(f"seed must not be negative. Received: {seed}.")
        if self._steps.count == 0:
            raise ConfigError(
                f"An epoch needs a batch for each of {self._shard.size} ranks. Received: "
                f"{len(clicks)} samples for batches of {batch_size}, {drop_remainder=}."
            )

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch, the same on every rank."""
        return self._steps.count

    def position(self, steps: int) -> Position:
        """Returns where training stands after this many steps from the start of epoch 0."""
        return Position(*divmod(steps, self.steps_per_epoch))

    def batches(self, epoch: int = 0, step: int = 0, epochs: int | None = 1) -> Iterator[Clicks]:
        """Yields what `dataset` does, as tables."""
        self._check_position(epoch, step)
        passes = itertools.count(epoch) if epochs is None else range(epoch, epoch + epochs)
        for current in passes:
            order = self._order(current)
            for index in range(step if current == epoch else 0, self.steps_per_epoch):
                part = self._shard.part(*self._steps.bounds(index))
                yield self._clicks.take(part if order is None else order[part])

    def dataset(self, epoch: int = 0, step: int = 0, epochs: int | None = 1) -> tf.data.Dataset:
        """Returns the batches from a position on: always the same ones, however often it is read.

        Each epoch of an endless dataset is shuffled anew. Keras's `fit` starts a dataset of one
        epoch again for each of its own, so give it the endless one:

        ```python
        model.fit(batches.dataset(epochs=None), epochs=3, steps_per_epoch=batches.steps_per_epoch)
        model.evaluate(validation.dataset())
        ```

        To resume at `Position(1, 20)`: `fit(batches.dataset(1, 20), initial_epoch=1, epochs=2)`
        finishes the broken epoch, then `fit(batches.dataset(2, epochs=None), initial_epoch=2,
        epochs=3, steps_per_epoch=...)` goes on.

        Args:
            epoch: Epoch of the first batch.
            step: Step of the first batch within its epoch.
            epochs: Number of epochs, the first one counted even if only its rest is left. `None`
                for no end.

        Returns:
            Elements `({name: [batch, length]}, label [batch, 1])`: int64 keys of each feature,
            float32 values of each dense column, float32 labels.

        Raises:
            ConfigError: There is no such position.
        """
        self._check_position(epoch, step)
        static = self._steps.batch_size if self._steps.drop_remainder else None
        batches = dataset_of(
            lambda: map(element, self.batches(epoch, step, epochs)), self._clicks.take([]), static
        )
        cardinality = (
            tf.data.INFINITE_CARDINALITY if epochs is None else epochs * self.steps_per_epoch - step
        )
        return batches.apply(tf.data.experimental.assert_cardinality(cardinality)).prefetch(
            tf.data.AUTOTUNE
        )

    def _order(self, epoch: int) -> np.ndarray | None:
        if not self._shuffle:
            return None
        return np.random.default_rng([self._seed, epoch]).permutation(len(self._clicks))

    def _check_position(self, epoch: int, step: int) -> None:
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ConfigError(
                f"A position needs epoch >= 0 and step in [0, {self.steps_per_epoch}). "
                f"Received: epoch {epoch}, step {step}."
            )
