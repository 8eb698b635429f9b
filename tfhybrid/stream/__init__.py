"""Online training: queues of samples, leases of their rows, and the weights trained from them."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.stream.dead_letters import DeadLetters
    from tfhybrid.stream.fetching import fetch
    from tfhybrid.stream.joining import Join, JoinColumns
    from tfhybrid.stream.leased_dataset import dataset
    from tfhybrid.stream.leases import Leases
    from tfhybrid.stream.log_queue import LogQueue
    from tfhybrid.stream.online import Online
    from tfhybrid.stream.opening import open_queue
    from tfhybrid.stream.queue import Position, Queue, Record
    from tfhybrid.stream.settings import StreamSettings
    from tfhybrid.stream.validate import Validate

__all__ = [
    "DeadLetters",
    "Join",
    "JoinColumns",
    "Leases",
    "LogQueue",
    "Online",
    "Position",
    "Queue",
    "Record",
    "StreamSettings",
    "Validate",
    "dataset",
    "fetch",
    "open_queue",
]

# Imported on first use, so that a process that trains no model does not import TensorFlow.
_SOURCES = {
    "DeadLetters": "dead_letters",
    "Join": "joining",
    "JoinColumns": "joining",
    "Leases": "leases",
    "LogQueue": "log_queue",
    "Online": "online",
    "Position": "queue",
    "Queue": "queue",
    "Record": "queue",
    "StreamSettings": "settings",
    "Validate": "validate",
    "dataset": "leased_dataset",
    "fetch": "fetching",
    "open_queue": "opening",
}

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
