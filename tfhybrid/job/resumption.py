"""The start of a job that may resume from memory."""

from __future__ import annotations

from typing import Any, Protocol

from tfhybrid import distributed
from tfhybrid.config import TableConfig
from tfhybrid.core.engine import Engine
from tfhybrid.core.kept_state import KeptState
from tfhybrid.job import opening


class Openable(Protocol):
    """A table that is opened once its store has been chosen."""

    name: str
    dim: int
    config: TableConfig

    def open(self) -> None:
        """Opens it."""


class Resumption:
    """The stores that a killed run left, or new ones, and the tables that wait for the choice.

    No row of either can be read before `tfhybrid.checkpoint.restore` has chosen, so that training
    never mixes both. Every rank calls the same methods.

    Args:
        engine: Of this rank.
        job: Name of the job.

    Attributes:
        absence: Why the job cannot resume; `None` if it can.
        settled: Whether the choice was made. Later tables are opened when they are created.
        tables: The tables that were created before the choice.
        configuration: What must be equal in the run that resumes from this one.
        kept: The state that this rank keeps beside the tables.
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
        """Opens the waiting tables in the existing stores."""

        def open_all() -> None:
            for table in self.tables:
                table.open()

        distributed.together(open_all)

    def discard(self) -> None:
        """Replaces the stores that a killed run left by new ones."""
        self._engine.close_store()
        distributed.barrier()
        opening.open_fresh(self._engine, self._job)

    def count_optimizer(self) -> None:
        """Counts an optimizer; with a second one, no more state is kept."""
        self.optimizers += 1
        if self.optimizers > 1:
            self.kept.forget()
