"""Set of tables in a store of this process."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.opened_table import OpenedTable


class TableSet:
    """Tables in a store of this process, by name. Thread-safe as far as `Engine` is.

    The owner must call `close`.

    Args:
        engine: Engine that opens the store. Default: an engine of a job with one rank.

    Attributes:
        engine: Engine of the store.
        dims: Length of an embedding of each table, by name.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = Engine() if engine is None else engine
        self.dims: dict[str, int] = {}

    def create_store(self, directory: str | os.PathLike[str], job: str, description: str) -> None:
        """Creates a store that no other process opens.

        Args:
            directory: Directory of the stores, in shared memory; made if it does not exist.
            job: Name of the store, unique among those of the directory.
            description: Description of this process, for messages of others.

        Raises:
            OutOfSpaceError: Shared memory is full.
            NameTakenError: There is a store of that name.
            OSError: The directory cannot be made.
        """
        Path(directory).mkdir(parents=True, exist_ok=True)
        token = secrets.randbits(63) | 1
        self.engine.open_store(os.fspath(directory), job, 0, description, token)

    def open_table(self, table: OpenedTable) -> None:
        """Opens a table.

        Args:
            table: Settings of the table.

        Raises:
            TfhybridError: The table is open with another configuration, or there is no space.
        """
        self.engine.open_table(table)
        self.dims[table.name] = table.dim

    def stats(self) -> dict[str, native.TableStatsStruct]:
        """Returns the counts of each table, by name.

        Raises:
            StoreError: The store is closed.
        """
        return {name: self.engine.table_stats(name) for name in list(self.dims)}

    def rows(self, table: str) -> int:
        """Returns the number of rows of a table, which may also be one of waiting keys.

        Raises:
            StoreError: The store is closed, or has no such table.
        """
        return int(self.engine.table_stats(table).rows)

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Closes the store if the block raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self, *, leave: bool = False) -> None:
        """Closes the store and frees its memory; nobody may read meanwhile.

        Args:
            leave: Whether the files of the store stay, for `Engine.recover_store`.
        """
        self.engine.close_store(leave=leave)
