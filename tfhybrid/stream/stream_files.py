"""The files and folders of a stream."""

from __future__ import annotations

import os
from pathlib import Path


class StreamFiles:
    """Where a provider and a sync unit keep what is theirs.

    Args:
        folder: Folder of the stream, `folder` in `stream.yaml`.

    Attributes:
        models: Folder with a folder of each target model, its journal and bases.
        bad_rows: File of the provider with bad rows.
        set_aside: File of the provider with the leases that were set aside.
        deaths: File of the provider with the rows under which trainers have died.
        topics: File of the provider with the ids of topics that other programs write.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self.models = self._folder / "models"
        self.bad_rows = self._folder / "bad-rows.jsonl"
        self.set_aside = self._folder / "set-aside.json"
        self.deaths = self._folder / "deaths.json"
        self.topics = self._folder / "topics.json"

    def queue(self, name: str) -> Path:
        """Returns the folder of a queue that has no address of its own."""
        return self._folder / "queues" / name

    def producers(self, queue: str) -> Path:
        """Returns the file of the provider with the last record of each producer in a queue."""
        return self._folder / f"producers-{queue}.json"
