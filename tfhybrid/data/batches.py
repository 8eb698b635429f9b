"""Batches from a table in memory: sharded by rank, shuffled by seed, resumable at any step."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from tfhybrid.data.formats.label import LabelSpec
from tfhybrid.data.formats.table_columns import clicks_of
from tfhybrid.data.resumable import ResumableBatches
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.origin import Cut, Origin, digest_of_table
from tfhybrid.data.samples.sharding import Shard
from tfhybrid.errors import ConfigError


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

    @classmethod
    def of(
        cls, table: Any, *, label: LabelSpec, batch_size: int, seed: int = 0, **options: Any
    ) -> Batches:
        """Returns batches of a data frame, an Arrow table, or a dictionary of arrays.

        Columns of whole numbers and strings, and lists of those, are features. Columns of floats
        and booleans, and lists of a fixed size of those, are dense. Strings become keys by
        `string_keys`. Every rank holds the same table.

        Args:
            table: `pandas.DataFrame`, or another data frame that Arrow can read; `pyarrow.Table`;
                or dictionary of arrays by name, `[n]` or `[n, length]`.
            label: Label column, 0 or 1; or a `Label` with other values; or several of them.
            batch_size: Samples per rank and step, at least 1.
            seed: Seed of the shuffle, not negative. Default 0.
            **options: Arguments of `Parquet` for the columns (`features`, `dense`, `positive`,
                `missing_key`, `missing_value`), and further arguments of `Batches`.

        Raises:
            ConfigError: The table is of no such kind, or an argument is unknown or out of range.
            DataError: A value is missing, or is no key, number or label; or a column has another
                type, such as times. The message names column and row.

        Example:

        >>> import numpy as np
        >>> rows = {"click": np.array([1, 0]), "user": np.array([7, 8]), "city": ["Rome", "Oslo"]}
        >>> batches = Batches.of(rows, label="click", batch_size=2, shard=Shard(0, 1))
        >>> batches.steps_per_epoch
        1
        """
        _check_options(options)
        named = {name: options.pop(name, None) for name in ("features", "dense", "positive")}
        missing = options.pop("missing_key", None), options.pop("missing_value", None)
        clicks = clicks_of(table, label, missing=missing, **named)
        return cls(clicks, batch_size, seed=seed, **options)

    @override
    def _epoch(self, epoch: int, before: Sequence[Cut], step: int) -> Iterator[Clicks]:
        order = self._order(epoch)
        used = sum(cut.samples for cut in before)
        steps = dataclasses.replace(self._steps, samples=self._steps.samples - used)
        for index in range(step, steps.count):
            begin, end = steps.bounds(index)
            part = self._shard.part(begin, end)
            part = slice(used + part.start, used + part.stop)
            yield self._clicks.take(part if order is None else order[part])

    @override
    def _described(self) -> Origin:
        return Origin(
            batch_size=self._steps.batch_size,
            ranks=self._shard.size,
            window=0,
            seed=self._seed,
            shuffle=self._shuffle,
            drop_remainder=self._steps.drop_remainder,
            samples=self._steps.samples,
            digest=digest_of_table(self._clicks),
        )

    @override
    def _head(self) -> Clicks:
        return self._clicks.take(slice(0, self._steps.batch_size))

    @override
    def _example(self) -> Clicks:
        return self._clicks.take([])

    def _order(self, epoch: int) -> np.ndarray | None:
        if not self._shuffle:
            return None
        return np.random.default_rng([self._seed, epoch]).permutation(len(self._clicks))


_OPTIONS = (
    *("features", "dense", "positive", "missing_key", "missing_value"),
    *("shuffle", "drop_remainder", "shard"),
)


def _check_options(options: Iterable[str]) -> None:
    """Checks the names of further arguments of `Batches.of`.

    Args:
        options: Names of the arguments.

    Raises:
        ConfigError: An argument is unknown. The message has the closest name.
    """
    for name in options:
        if name not in _OPTIONS:
            closest = difflib.get_close_matches(name, _OPTIONS, 1)
            hint = f" Did you mean {closest[0]!r}?" if closest else ""
            raise ConfigError(
                f"Batches.of has no argument {name!r}.{hint} Expected: table, label, batch_size, "
                f"seed, {', '.join(_OPTIONS)}"
            )
