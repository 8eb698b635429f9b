"""The queues of a provider, also the partitions of topics that other programs write."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from typing_extensions import override

from tfhybrid.errors import ConfigError, PositionLostError, TfhybridError
from tfhybrid.stream.provider.served_queue import ServedQueue
from tfhybrid.stream.provider.topic_ids import TopicIds
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.numbered_writer import ForeignWriters
from tfhybrid.stream.queues.queue import Queue, Topic

_log = logging.getLogger("tfhybrid.stream")

_FIRST_RECORDS = 8  # of a partition, by which the format of a topic is judged


def partition_name(topic: str, number: int) -> str:
    """Returns the name of the queue that is a partition of a topic.

    Args:
        topic: Name of the topic's queue in `stream.yaml`.
        number: Number of the partition.

    Example:

    >>> partition_name("clicks", 3)
    'clicks/3'
    """
    return f"{topic}/{number}"


class ServedQueues(Mapping[str, ServedQueue]):
    """The queues of a provider by name; each partition of a topic of others is one. Thread-safe.

    A thread looks for partitions that were added. Their queues begin at their oldest record.

    Args:
        queues: Queues that the provider writes. This object closes them.
        topics: Topics that other programs write, by the name of their queue. Default none.
        serve: Function that returns the served queue of a partition, by its name, the name of the
            topic's queue, the partition's writers and its `beside`. Needed with `topics`.
        ids: Ids of the topics, which are compared and added. Needed with `topics`.
        seconds: Time between two looks at the topics, in seconds. Default 60.

    Raises:
        ConfigError: The first records of a new topic are neither JSON nor Arrow.
        PositionLostError: A topic was deleted and made again.
        StreamError: A topic does not exist, or its broker or the sync unit cannot be reached.
        OSError: The ids cannot be written.
    """

    def __init__(
        self,
        queues: Mapping[str, ServedQueue],
        topics: Mapping[str, Topic] | None = None,
        serve: Callable[[str, str, ForeignWriters, ServedQueue | None], ServedQueue] | None = None,
        ids: TopicIds | None = None,
        *,
        seconds: float = 60.0,
    ) -> None:
        self._queues = dict(queues)
        self._partitions: dict[str, tuple[str, ...]] = {}
        self._topics = topics or {}
        self._serve = serve
        self._ids = ids
        self._seconds = seconds
        self._ends = threading.Event()
        for name in self._topics:
            self._look_at(name)
        self._thread = threading.Thread(target=self._run, name="tfhybrid-topics", daemon=True)
        if self._topics:
            self._thread.start()

    @override
    def __getitem__(self, name: str) -> ServedQueue:
        return self._queues[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    @override
    def __len__(self) -> int:
        return len(self._queues)

    def names(self, declared: Sequence[str]) -> tuple[str, ...]:
        """Returns names of queues, with the present partitions in the place of their topic.

        Args:
            declared: Names in `stream.yaml`, or of partitions. They need not exist.
        """
        return tuple(each for name in declared for each in self._partitions.get(name, (name,)))

    def check(self, name: str) -> None:
        """Checks that a queue exists.

        Args:
            name: Name of the queue.

        Raises:
            ConfigError: There is no such queue.
        """
        if name not in self._queues:
            raise ConfigError(
                f"The queue must be one of {sorted(self._queues)}. Received: {name!r}"
            )

    def close(self) -> None:
        """Stops the thread, waits until it has ended, and closes the queues."""
        self._ends.set()
        if self._topics:
            self._thread.join()
        for queue in self._queues.values():
            queue.close()

    def _first_of(self, name: str) -> ServedQueue | None:
        """Returns the first partition of a topic that is served, if there is one."""
        partitions = self._partitions.get(name, ())
        return self._queues[partitions[0]] if partitions else None

    def _run(self) -> None:
        while not self._ends.wait(self._seconds):
            for name in self._topics:
                try:
                    self._look_at(name)
                except PositionLostError as error:
                    _log.error("Queue %s is not leased any more: %s", name, error)
                    for partition in self._partitions[name]:
                        self._queues[partition].refusal = str(error)
                except (TfhybridError, OSError) as error:
                    _log.warning("Cannot look for partitions, will try again later: %s", error)

    def _look_at(self, name: str) -> None:
        """Opens the partitions of a topic that are new."""
        assert self._serve is not None
        assert self._ids is not None
        topic = self._topics[name]
        state = topic.state()
        self._ids.check(name, state.id)
        if not self._ids.knows(name):
            for number in range(state.partitions):
                with contextlib.closing(topic.open(number)) as queue:
                    _check_format(name, queue)
            self._ids.add(name, state.id)
        for number in range(len(self._partitions.get(name, ())), state.partitions):
            partition, queue = partition_name(name, number), topic.open(number)
            with contextlib.ExitStack() as undo:
                undo.callback(queue.close)
                writers = ForeignWriters(partition, queue)
                served = self._serve(partition, name, writers, self._first_of(name))
                undo.pop_all()
            self._queues = {**self._queues, partition: served}
            self._partitions[name] = (*self._partitions.get(name, ()), partition)
            _log.info("Queue %s is served", partition)


def _check_format(name: str, queue: Queue) -> None:
    """Refuses a topic of another format, instead of each of its records."""
    begin = queue.begin()
    if begin == queue.end():
        return
    chunk = queue.read(begin, max_records=_FIRST_RECORDS, wait_seconds=1.0)
    payloads = [record.payload for _, record in chunk.records]
    faults = [rows.other_format(each) for each in payloads if each != rows.NO_ROWS]
    if faults and None not in faults:
        raise ConfigError(
            f"Queue {name} cannot be trained: the first records of {queue.name} have another "
            f"format. Write JSON or Arrow into a topic by your stream processor. {faults[0]}"
        )
