"""Start of a job that can resume from memory."""

from __future__ import annotations

from typing import Any, Protocol

from tfhybrid import distributed
from tfhybrid.config import TableConfig
from tfhybrid.core.engine import Engine
from tfhybrid.core.kept_state import KeptState
from tfhybrid.job import store_opening


class Openable(Protocol):
    """Table that waits to be opened until its store has been chosen.

    Attributes:
        name: Name of the table.
        dim: Length of a row's embedding.
        config: Configuration of the table.
    """

    name: str
    dim: int
    config: TableConfig

    def open(self) -> None:
        """Opens the table in the chosen store."""


class Resumption:
    """Choice between the stores that a killed run left and new ones, with the tables that wait.

    `tfhybrid.checkpoint.restore` chooses. No table can be read before, so training never mixes rows
    of both. Every rank must call the same methods in the same order. The constructor recovers the
    stores of the killed run, or opens new ones if there are none.

    Args:
        engine: Engine of this rank.
        job: Name of the job.

    Attributes:
        absence: Reason why the job cannot resume; `None` if it can.
        settled: True once the choice was made. Later tables are opened when they are created.
        tables: Tables that were created before the choice.
        configuration: Settings that must be equal in the run that resumes from this one.
        kept: State that this rank keeps beside the tables.
        optimizers: Number of optimizers that train tables.

    Raises:
        NameTakenError: On the leader: the job still runs.
        StoreError: On all ranks: another rank failed, or a store cannot be opened.
    """

    def __init__(self, engine: Engine, job: str) -> None:
        self._engine = engine
        self._job = job
        self.kept = KeptState(engine)
        self.tables: list[Openable] = []
        self.configuration: dict[str, Any] = {}
        self.settled = False
        self.optimizers = 0
        self.absence = store_opening.recover(engine, job)
        if self.absence is not None:
            store_opening.open_fresh(engine, job)

    def open(self, table: Openable) -> None:
        """Opens a table, or lets it wait until the choice was made.

        Args:
            table: Table that was created now.

        Raises:
            TfhybridError: The table cannot be opened.
        """
        if self.settled:
            table.open()
        else:
            self.tables.append(table)

    @distributed.call("the opening of tables")
    def open_tables(self) -> None:
        """Opens the waiting tables in the stores that are open now.

        Raises:
            TfhybridError: On all ranks: one of them cannot open a table.
        """

        def open_all() -> None:
            for table in self.tables:
                table.open()

        distributed.together(open_all)

    def discard(self) -> None:
        """Replaces the stores that a killed run left by new ones.

        Raises:
            TfhybridError: On all ranks: one of them cannot open a new store.
        """
        self._engine.close_store()
        distributed.barrier()
        store_opening.open_fresh(self._engine, self._job)

    def count_optimizer(self) -> None:
        """Counts an optimizer. From the second one on, no state is kept beside the tables.

        Raises:
            StoreError: No store is open.
        """
        self.optimizers += 1
        if self.optimizers > 1:
            self.kept.forget()
