"""Batches from a table in memory: sharded by rank, shuffled by seed, resumable at any step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from typing_extensions import override

from tfhybrid.data.resumable import ResumableBatches
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.sharding import Shard


class Batches(ResumableBatches):
    """Batches of one rank. The global batches are the same whatever the number of ranks.

    An epoch is a permutation of all samples that depends only on (seed, epoch). It is cut into
    global batches of `batch_size * size` samples, and each rank takes a contiguous part of each: no
    sample is lost or repeated, and all ranks have the same number of steps. The last global batch
    of an epoch is divided evenly; if it has fewer samples than there are ranks, it is appended to
    the previous batch.

    Args:
        clicks: Samples of all ranks; every rank holds the same table.
        batch_size: Samples per rank and step, at least 1.
        seed: Seed of the shuffle, not negative, the same on every rank.
        shuffle: Whether to shuffle; otherwise batches keep the order of the table. Default true.
        drop_remainder: Whether to drop an incomplete last batch; the dataset's batch dimension is
            then static. Default false.
        shard: Number of this rank, and number of ranks. Defaults to this Horovod rank.

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
        super().__init__(len(clicks), batch_size, seed, drop_remainder, shard)
        self._clicks = clicks
        self._shuffle = shuffle

    @override
    def _epoch(self, epoch: int, step: int) -> Iterator[Clicks]:
        order = self._order(epoch)
        for index in range(step, self.steps_per_epoch):
            part = self._shard.part(*self._steps.bounds(index))
            yield self._clicks.take(part if order is None else order[part])

    @override
    def _example(self) -> Clicks:
        return self._clicks.take([])

    def _order(self, epoch: int) -> np.ndarray | None:
        if not self._shuffle:
            return None
        return np.random.default_rng([self._seed, epoch]).permutation(len(self._clicks))
