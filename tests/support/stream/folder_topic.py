"""A topic of others whose partitions are directories, for tests without a broker."""

from __future__ import annotations

import json
from pathlib import Path

from typing_extensions import override

from tfhybrid.errors import StreamError
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Queue, Record, Slice, Topic, TopicState


class CompactedQueue(LogQueue):
    """A directory from which records vanish while it is read."""

    def __init__(self, folder: Path, removed: set[int]) -> None:
        super().__init__(folder)
        self._removed = removed

    @override
    def read(self, offset: int, *, max_records: int = 1000, wait_seconds: float = 0.0) -> Slice:
        chunk = super().read(offset, max_records=max_records, wait_seconds=wait_seconds)
        records = [each for each in chunk.records if each.offset not in self._removed]
        return Slice(tuple(records), chunk.next_offset)


class FolderTopic(Topic):
    """Directories `0`, `1`, ... in a folder, each written by the test."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.id = "first"
        self.removed: set[int] = set()  # offsets in each partition, by compaction
        self._folder = folder
        self._writers: list[LogQueue] = []
        for _ in range(partitions):
            self.add_partition()

    def add_partition(self) -> None:
        folder = self._folder / str(len(self._writers))
        self._writers.append(LogQueue(folder, write=True, fsync="never"))

    def write(self, partition: int, *payloads: bytes) -> None:
        self._writers[partition].append([Record(each) for each in payloads])

    def write_items(self, partition: int, *items: int) -> None:
        self.write(partition, *(json.dumps({"item": item}).encode() for item in items))

    @override
    def state(self) -> TopicState:
        if not self._writers:
            raise StreamError("The topic does not exist")
        return TopicState(self.id, len(self._writers))

    @override
    def open(self, partition: int) -> Queue:
        return CompactedQueue(self._folder / str(partition), self.removed)
