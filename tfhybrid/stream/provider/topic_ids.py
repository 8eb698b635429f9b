"""The ids of the topics that a provider serves, so that another topic of the name is refused."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import CorruptFileError, PositionLostError
from tfhybrid.stream.weights import checked_json

_log = logging.getLogger("tfhybrid.stream")


class TopicIds:
    """The id of each topic that is trained, in a file. Not thread-safe.

    Positions in the weights belong to one topic. If it is deleted and made again, its offsets begin
    anew, and rows would be skipped without a word. If the file is lost or damaged, the topics count
    as those that were trained.

    Args:
        path: Path of the file; it need not exist.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._ids = self._read()

    def knows(self, queue: str) -> bool:
        """Returns whether a queue's topic has an id here.

        Args:
            queue: Name of the queue.
        """
        return queue in self._ids

    def check(self, queue: str, topic: str) -> None:
        """Compares a topic's id with the one that its queue has here.

        Args:
            queue: Name of the queue.
            topic: Present id of its topic.

        Raises:
            PositionLostError: The ids are different.
        """
        if self._ids.get(queue, topic) != topic:
            raise PositionLostError(
                f"The topic of queue {queue} was deleted and made again, or is another one: its id "
                f"must be {self._ids[queue]}. Positions in the weights would mean other rows. Give "
                f"the queue another name in stream.yaml to train the present topic from its oldest "
                f"record. Received: {topic}"
            )

    def add(self, queue: str, topic: str) -> None:
        """Writes the id of a queue's topic. Call it before any row of it is leased.

        Args:
            queue: Name of the queue.
            topic: Id of its topic.

        Raises:
            OSError: The file cannot be written.
        """
        self._ids[queue] = topic
        content, _ = checked_json.encoded(self._ids)
        write_whole(self._path, content)

    def _read(self) -> dict[str, str]:
        try:
            ids, _ = checked_json.read(self._path)
            return dict(ids)
        except FileNotFoundError:
            return {}
        except (CorruptFileError, TypeError, ValueError) as error:
            moved = checked_json.moved_aside(self._path)
            _log.error("Topics count as those that were trained: %s. It is now %s", error, moved)
            return {}
