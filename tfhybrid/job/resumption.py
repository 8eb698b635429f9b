"""What a job that may go on from memory begins with."""

from __future__ import annotations

from typing import Any, Protocol

from tfhybrid import distributed
from tfhybrid.config import TableConfig
from tfhybrid.core.engine import Engine
from tfhybrid.core.kept_state import KeptState
from tfhybrid.job import opening


class Openable(Protocol):
    """A table that is opened when it is known in which store."""

    name: str
    dim: int
    config: TableConfig

    def open(self) -> None:
        """Opens it."""


class Resumption:
    """The stores that a killed run left, or fresh ones, and the tables that wait for the choice.

    Nobody sees a row of either before `tfhybrid.checkpoint.restore` has chosen, so that what one
    trains on is never part of both. Every rank calls the same methods.

    Args:
        engine: Of this rank.
        job: Name of the job.

    Attributes:
        absence: Why there is nothing to go on with; `None` if there is.
        settled: Whether the choice was made. Tables that come later are opened when they are made.
        tables: Those that came before.
        configuration: What must be the same in the run that goes on from this one.
        kept: What this rank keeps beside the tables.
        optimizers: Number of optimizers that train tables.
    """

    def __init__(self, engine: Engine, job: str) -> None:
        self._engine = engine
        self._job = job
        self.kept = KeptState(engine)
        self.tables: list[Openable] = []
        self.configuration: dict[str, Any] = {}
        self.settled = False
        self.optimizers = 0
        self.absence = opening.recover(engine, job)
        if self.absence is not None:
            opening.open_fresh(engine, job)

    def open_tables(self) -> None:
        """Opens the tables that wait, in the stores that there are."""

        def open_all() -> None:
            for table in self.tables:
                table.open()

        distributed.together(open_all)

    def discard(self) -> None:
        """Puts fresh stores in the place of those that a killed run left."""
        self._engine.close_store()
        distributed.barrier()
        opening.open_fresh(self._engine, self._job)

    def count_optimizer(self) -> None:
        """Counts an optimizer; with a second one nothing is kept any more."""
        self.optimizers += 1
        if self.optimizers > 1:
            self.kept.forget()
