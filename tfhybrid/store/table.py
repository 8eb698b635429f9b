"""A process's view of a table in the host's store."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from typing_extensions import override

from tfhybrid import distributed
from tfhybrid.config import TableConfig
from tfhybrid.core import native, passes
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock, RowSource
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.errors import ConfigError, NameTakenError, StoreError
from tfhybrid.job.job import current_job
from tfhybrid.monitoring.report import TableSize
from tfhybrid.store.auto_placement import settled
from tfhybrid.store.filling import fill
from tfhybrid.store.table_stats import ShardSize, TableStats, quantiles_of_norms


class Table:
    """An embedding table, shared by the ranks of a host and written by their leader.

    Layers create tables on every rank. Use this class to read tables, or to load rows. After the
    job's end, or if a host that they need has died, its methods raise `StoreError`.

    Args:
        name: Name of the table, unique within the job.
        config: Settings of the table.

    Attributes:
        owner: Owner of the rows: hosts of the ranks, or embedding nodes.
        unseen: Embedding of a key without a row outside of training: `"zeros"` or `"initial"`.

    Raises:
        NotInitializedError: `tfhybrid.init()` was not called.
        NameTakenError: The job already has a table of that name.
        OutOfSpaceError: Shared memory is full.
        PeerDiedError: The leader died, or did not create the table within two minutes.
        ConfigError: The leader created the table with another shape, or the name is too long.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), name="doc_item")
    >>> layer.build((None, 1))
    >>> layer.table.lookup([7, -1]).shape
    (2, 4)
    """

    def __init__(self, name: str, config: TableConfig) -> None:
        self.name = name
        self._job = current_job()
        self.config = config = settled(name, config, self._job)
        self.unseen = config.unseen or ("zeros" if config.trainable else "initial")
        self.dim = config.dim
        self.optimizer: tuple[float, ...] = ()
        self.state_shape = (0, config.dim)
        self._is_open = False
        self._seen = native.TableStatsStruct()  # counters at the last call of `stats`
        self._allocated_as = name  # the name whose hash determines the keys' owners
        self.owner = self._job.access.owner_of(config.placement)
        # The table of keys that wait for admission to this one, opened with it.
        self.waiting = WaitingTable(self) if config.policy.get("admission", 0) > 1 else None
        self._open_in_time()

    def __repr__(self) -> str:
        """Returns name and contents."""
        held = f"rows={self.rows}, version={self.version}" if self._is_open else "not open yet"
        return f"<Table '{self.name}': dim={self.dim}, {held}>"

    def _open_in_time(self) -> None:
        if self._job.resumption is None:
            self.open()
        else:
            self._job.resumption.open(self)

    def open(self) -> None:
        """Opens the table in the process's store, once that is known. Raises as the class does."""
        # First: an owner answers announced keys once it has the table, on its own connection.
        self.owner.connect()
        try:
            self._open_on_this_host()
        except NameTakenError as error:
            raise NameTakenError(
                f"{error}. In a notebook, call tfhybrid.shutdown() and tfhybrid.init() before you "
                "build the model again: that frees all tables"
            ) from None
        self._is_open = True
        self.set_unseen(self.unseen)
        if self.waiting is not None:
            self.waiting.open()
        if self._job.is_leader and self.config.expected_rows:
            self.reserve_shard(self.config.expected_rows)
        if self.optimizer:
            self._set_optimizer()

    def _open_on_this_host(self) -> None:
        if self._job.watch is not None:
            self._job.watch.note_table(self.name)
        config = self.config
        files = config.storage.native if config.storage else ("", 0)
        table = OpenedTable(
            *(self.name, config.dim, config.initializer.native, self._job.seed),
            *(config.policy, self.owner.placement, files),
        )
        with distributed.waiting(f"the opening of table {self.name!r}"):
            self._job.engine.open_table(table)

    @property
    def is_sharded(self) -> bool:
        """Whether other hosts have rows that this host does not have."""
        return self.owner.sharded

    @property
    def writer(self) -> TableWriter:
        """The leader's operations on the table between two steps."""
        waiting = None if self.waiting is None else self.waiting.writer
        shape = self.state_shape
        return self.owner.writer(self.name, self.dim, shape, waiting, self._allocated_as)

    def reserve_shard(self, rows: int) -> None:
        """Reserves space for this host's part of `rows` rows. Only the leader may call it.

        Raises:
            StoreError: Shared memory is full (`OutOfSpaceError`), or this is not the leader.
        """
        self.writer.reserve(self.owner.part_of(rows))

    @property
    def seed(self) -> int:
        """The job's seed. Together with the table's name, it determines the initial values."""
        return self._job.seed

    @property
    def engine(self) -> int:
        """Number of the engine in which the table is open."""
        return self._job.engine.number

    @property
    def keeps_history(self) -> bool:
        """Whether each row records when and how often it was updated."""
        return bool(self.config.policy)

    @property
    def rows(self) -> int:
        """Number of rows on this host. In a job with embedding nodes, rank 0 counts their rows."""
        return int(self._counters().rows)

    @property
    def all_rows(self) -> int:
        """Number of rows on all hosts, each counted once."""
        return sum(shard.rows for shard in self.owners())

    def owners(self) -> list[ShardSize]:
        """Returns each host's part of a sharded table, or this host's part of a replicated one.

        It sends a request to one host after the other. Other ranks need not call it.

        Example:

        ```python
        rows = [shard.rows for shard in layer.table.owners()]
        logging.info("fullest host: %.2f of the mean", max(rows) * len(rows) / sum(rows))
        ```
        """
        shards = [self._scan(host, 0, 0)[0] for host in self.owner.others]
        if self.owner.owns_here:
            counters, here = self._counters(), self._job.engine.host
            shards.append(ShardSize(host=here, rows=counters.rows, bytes=counters.bytes))
        return sorted(shards, key=lambda shard: shard.host)

    @property
    def _own_rows(self) -> int:
        """Number of rows in this host's memory: none if nodes own the table."""
        return self.rows if self.owner.owns_here else 0

    @property
    def version(self) -> int:
        """Number of updates applied."""
        return int(self._counters().version)

    @property
    def optimizer_start(self) -> int:
        """Version at which the table's optimizer began; `StoreError` except on the leader."""
        start = ctypes.c_uint64()
        self._call("table_optimizer_start", ctypes.byref(start))
        return start.value

    @property
    def decay(self) -> float:
        """Factor by which weight decay has shrunk the initial values of keys without a row."""
        decay = ctypes.c_double()
        self._call("table_decay", ctypes.byref(decay))
        return decay.value

    def stats(self, *, count_nan: bool = False, norm_quantiles: Sequence[float] = ()) -> TableStats:
        """Returns statistics of the table on this host, some of them since the last call.

        Args:
            count_nan: Whether to read all embeddings and count the rows with NaN.
            norm_quantiles: Quantiles of the embeddings' norms to return, from 0 to 1. Of a table
                with more than a million rows, evenly spread rows are used.

        Raises:
            ConfigError: A quantile is out of range.

        Example:

        ```python
        stats = layer.table.stats(count_nan=True)
        logging.info("%d new rows, load factor %.2f", stats.new_rows, stats.load_factor)
        assert stats.nan_rows == 0
        ```
        """
        struct = self._counters()
        counted = {each.name: getattr(struct, each.name) for each in dataclasses.fields(TableSize)}
        seen, self._seen = self._seen, struct
        evicted_rows = struct.evicted - seen.evicted
        new_rows = max(0, struct.rows - seen.rows + evicted_rows)  # fewer after clear()
        keys, distinct = struct.keys - seen.keys, struct.distinct_keys - seen.distinct_keys
        waiting = None if self.waiting is None else self.waiting.stats()
        return TableStats(
            **counted,
            waiting=0 if waiting is None else waiting.rows,
            waiting_bytes=0 if waiting is None else waiting.bytes,
            new_rows=new_rows,
            evicted_rows=evicted_rows,
            unique_ratio=distinct / keys if keys else math.nan,
            nan_rows=self._job.engine.count_nan(self.name) if count_nan else None,
            norm_quantiles=quantiles_of_norms(self._own_rows, self._embeddings, norm_quantiles),
        )

    def lookup(self, keys: np.ndarray | list[int]) -> np.ndarray:
        """Returns embeddings, float32 `keys.shape + (dim,)`; initial values without a row.

        Args:
            keys: Keys, int64 of any shape.

        Raises:
            ConfigError: The keys are not whole numbers that fit in int64.
            StoreError: The job has ended, or an owner of rows has died.
        """
        return self._job.engine.lookup(self.name, self.dim, _checked_keys(keys))

    def read(self, keys: np.ndarray | list[int], *, states: bool = False) -> RowBlock:
        """Returns the rows of those keys that have a row on this host, in the order of the keys.

        Args:
            keys: Keys, int64 `[n]`.
            states: Whether to read state and history too, as only a leader can. Default: no.

        Raises:
            ConfigError: The keys are not whole numbers that fit in int64.
            StoreError: With `states`, this rank is not a leader.

        Example:

        ```python
        block = layer.table.read([7, 8, 9])
        vectors = dict(zip(block.keys.tolist(), block.embeddings))
        ```
        """
        array = _checked_keys(keys).ravel()
        block = self._empty_block(len(array), states=states)
        has_row = np.empty(len(array), np.bool_)
        self._call(
            "table_read_keys",
            ctypes.c_int64(len(array)),
            native.pointer(array),
            *map(native.pointer, (has_row, block.embeddings, block.states, block.history)),
        )
        return dataclasses.replace(block, keys=array).where(has_row)

    def blocks(self, block_rows: int = 65536, *, states: bool = False) -> Iterator[RowBlock]:
        """Yields all rows in blocks, in the order of creation if no row is ever evicted.

        Do not call it during a step. For a sharded table this host's rows come first, then the rows
        of other hosts, one block in memory at a time.

        Args:
            block_rows: Maximum number of rows in a block.
            states: Whether to read optimizer state and history too. It raises `StoreError` except
                on the leader, and yields only this host's rows of a sharded table.
        """
        total = self._own_rows
        for first in range(0, total, block_rows):
            block = self._empty_block(min(block_rows, total - first), states=states)
            self._read_block(first, block)
            yield block
        for host in [] if states else self.owner.others:
            first, total = 0, 1
            while first < total:
                shard, block = self._scan(host, first, block_rows)
                total = shard.rows
                first += block_rows
                if len(block.keys):
                    yield block

    def digest(self) -> int:
        """Returns a hash by which replicas on two hosts can be compared, bit for bit.

        On a leader it covers keys, embeddings and optimizer state; elsewhere no optimizer state.
        """
        return self._job.engine.digest(self.name)

    def set_optimizer(self, optimizer: tuple[float, ...], state_shape: tuple[int, int]) -> None:
        """Sets the table's optimizer. `DistributedOptimizer` calls it on every rank.

        The first optimizer adopts the state of a restored checkpoint or of a killed run. Each later
        optimizer starts from scratch, as in Keras, and its predecessor no longer trains the table.

        Args:
            optimizer: Numbers of the optimizer: its kind, then `native.OPTIMIZER_NUMBERS`.
            state_shape: Shape of a row's state: number of vectors, floats per vector.

        Raises:
            ConfigError: The table is in files, and the optimizer changes every row.
            StoreError: The table is in files and has rows of another optimizer.
        """
        if self.config.storage is not None:
            self._check_file_optimizer(optimizer)
        if self.optimizer and self._is_open:
            self._job.engine.forget_optimizer(self.name)
        self.optimizer = optimizer
        self.state_shape = state_shape
        if self._is_open:
            self._set_optimizer()

    def _check_file_optimizer(self, optimizer: tuple[float, ...]) -> None:
        """Checks the optimizer of a table in files on all ranks, as the core does on the leader."""
        settings = native.optimizer_settings(optimizer)
        if int(settings.get("flags", 0)) & native.OptimizerFlag.EVERY_ROW:
            raise ConfigError(
                f"Table '{self.name}' is in files: its optimizer cannot update every row, because "
                f"each step would read and write the whole file. Received: {settings}"
            )
        if self.optimizer and self._is_open and self.rows:
            raise StoreError(
                f"Table '{self.name}' is in files and has {self.rows} rows: its optimizer cannot "
                "be replaced. Save a checkpoint and restore it in a new job with another optimizer"
            )

    @distributed.call("Table.load")
    def load(self, source: RecordFile | RowSource) -> int:
        """Fills the table with rows that another program wrote, before the first step.

        Every rank must call it and waits for the leaders, which load. A failure empties the table.

        Args:
            source: Binary file of records, or one of `tfhybrid.checkpoint`: `ArrayRows`,
                `NumpyRows`, `ParquetRows`, `VariableRows`, `TfraRows`.

        Returns:
            The number of rows on this host.

        Raises:
            CorruptFileError: A binary file is truncated, or has duplicate keys or infinite numbers.
            DataError: Another source is malformed, or does not fit the table, or has duplicate keys
                or a bad row, which the message names.
            ConfigError: The table has rows, which then stay; a binary file does not fit the table;
                or the ranks are in different calls.
            StoreError: A binary file is missing, space ran out, or another leader could not load.
            OSError: The file of another source is missing.

        Example:

        ```python
        layer.build((None, 1))
        rows = layer.table.load(tfhybrid.checkpoint.NumpyRows("items.npz"))
        ```
        """
        engine = self._job.engine

        def load() -> None:
            passes.end_all(engine)  # they contain earlier rows
            if self._job.is_leader:
                fill(self, source)

        distributed.together(load)
        return self.rows

    def set_version(self, version: int, optimizer_start: int | None = None) -> None:
        """Sets the table's version after loading rows. Every rank must call it, the leader first.

        Args:
            version: Number of updates that the loaded rows contain.
            optimizer_start: Version at which the table's optimizer began. Defaults to `version`.
        """
        start = version if optimizer_start is None else optimizer_start
        self._job.engine.set_version(self.name, version, start)

    def set_unseen(self, unseen: str) -> None:
        """Sets what keys without a row read outside of training. Every rank must call it.

        Args:
            unseen: `"zeros"`, or `"initial"` for their initial values.
        """
        self.unseen = unseen
        self._job.engine.set_unseen(self.name, unseen)

    def _empty_block(self, rows: int, *, states: bool) -> RowBlock:
        return RowBlock(
            np.empty(rows, np.int64),
            np.empty((rows, self.dim), np.float32),
            np.empty((rows, *self.state_shape), np.float32) if states else None,
            np.empty(rows, native.HISTORY) if states and self.keeps_history else None,
        )

    def _read_block(self, first: int, block: RowBlock) -> None:
        self._call(
            "table_read_rows",
            ctypes.c_int64(first),
            ctypes.c_int64(len(block.keys)),
            *map(native.pointer, (block.keys, block.embeddings, block.states, block.history)),
        )

    def _scan(self, host: int, first: int, rows: int) -> tuple[ShardSize, RowBlock]:
        """Returns the size of another host's part, and up to `rows` of its rows from `first` on."""
        block = self._empty_block(rows, states=False)
        total, size, read = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64()
        self._job.engine.call(
            "owners_scan",
            ctypes.c_int64(host),
            self.name.encode(),
            ctypes.c_int64(first),
            ctypes.c_int64(rows),
            *map(ctypes.byref, (total, size, read)),
            *map(native.pointer, (block.keys, block.embeddings)),
        )
        scanned = RowBlock(block.keys[: read.value], block.embeddings[: read.value], None, None)
        return ShardSize(host=host, rows=total.value, bytes=size.value), scanned

    def _embeddings(self, first: int, rows: int) -> np.ndarray:
        block = self._empty_block(rows, states=False)
        self._read_block(first, block)
        return block.embeddings

    def _set_optimizer(self) -> None:
        if self._job.is_leader:
            settings = native.optimizer_settings(self.optimizer)
            settings |= {name: int(settings[name]) for name in ("kind", "flags")}
            self._job.engine.set_optimizer(self.name, **settings)

    def _counters(self) -> native.TableStatsStruct:
        return self._job.engine.table_stats(self.name)

    def _call(self, function: str, *arguments: object) -> None:
        self._job.engine.call(function, self.name.encode(), *arguments)


class WaitingTable(Table):
    """Table of the keys that wait for admission to another table. Row histories are their counters.

    The core opens, updates and closes it together with the other table, and checkpoints save both.

    Args:
        table: Table to which the keys may be admitted.
    """

    def __init__(self, table: Table) -> None:
        name = table.name + native.WAITING_SUFFIX
        self.awaited = table.name  # name of the other table
        config = TableConfig(1, "zeros", placement=table.config.placement, unseen="initial")
        super().__init__(name, config)
        self._allocated_as = table.name
        self.owner = table.owner

    @property
    @override
    def keeps_history(self) -> bool:
        return True

    @override
    def open(self) -> None:
        self._is_open = True  # the core has opened it with the other table

    @override
    def _open_in_time(self) -> None:
        pass  # the other table opens this one


def _checked_keys(keys: np.ndarray | list[int]) -> np.ndarray:
    array, masked = np.asarray(keys), np.ma.is_masked(keys)
    whole = np.issubdtype(array.dtype, np.integer) and array.dtype != np.uint64
    if masked or (array.size and not whole):
        received = "masked keys" if masked else array.dtype
        raise ConfigError(f"Keys must be whole numbers that fit in int64. Received: {received}")
    return np.asarray(array, np.int64, order="C")
