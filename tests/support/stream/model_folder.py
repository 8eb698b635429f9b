"""The folder of a target model, which is opened again and again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.sync_unit.target_model import TargetModel


class ModelFolder:
    """The folder of the model `ads`, and the model while it is open.

    Args:
        folder: The folder.
        memory: Directory of the store, in shared memory.
    """

    def __init__(self, folder: Path, memory: Path) -> None:
        self.folder, self.memory = folder, memory
        self.model: TargetModel | None = None

    def opened(self) -> TargetModel:
        """Returns the model as a new process finds it."""
        self.close()
        self.model = TargetModel("ads", self.folder, self.memory)
        return self.model

    def close(self) -> None:
        """Closes the model if it is open."""
        if self.model is not None:
            self.model.close()
            self.model = None

    def records(self) -> int:
        """Returns the number of records in the journal, also while the model is open."""
        with closing(LogQueue(self.folder / "journal")) as journal:
            return journal.end()
