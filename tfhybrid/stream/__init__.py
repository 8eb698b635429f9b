"""Online training: queues of samples, leases of their rows, and the weights trained from them."""

from typing import TYPE_CHECKING

from tfhybrid._deprecated import moved_names, renamed_names
from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.stream.queues.dead_letters import DeadLetters
    from tfhybrid.stream.queues.label_join import Join, JoinColumns
    from tfhybrid.stream.queues.queue import QueuePosition
    from tfhybrid.stream.queues.queue_address import open_queue
    from tfhybrid.stream.stream_settings import StreamSettings
    from tfhybrid.stream.trainer.fetching import fetch
    from tfhybrid.stream.trainer.leased_dataset import dataset
    from tfhybrid.stream.trainer.leases import Leases
    from tfhybrid.stream.trainer.online import Online
    from tfhybrid.stream.trainer.validate import Validate

__all__ = [
    "DeadLetters",
    "Join",
    "JoinColumns",
    "Leases",
    "Online",
    "QueuePosition",
    "StreamSettings",
    "Validate",
    "dataset",
    "fetch",
    "open_queue",
]

# Imported on first use, so that a process that trains no model does not import TensorFlow.
_SOURCES = {
    "DeadLetters": "queues.dead_letters",
    "Join": "queues.label_join",
    "JoinColumns": "queues.label_join",
    "Leases": "trainer.leases",
    "Online": "trainer.online",
    "QueuePosition": "queues.queue",
    "StreamSettings": "stream_settings",
    "Validate": "trainer.validate",
    "dataset": "trainer.leased_dataset",
    "fetch": "trainer.fetching",
    "open_queue": "queues.queue_address",
}

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
    __getattr__ = moved_names(
        __getattr__,
        LogQueue="tfhybrid.stream.queues.log_queue.LogQueue",
        Queue="tfhybrid.stream.queues.queue.Queue",
        Record="tfhybrid.stream.queues.queue.Record",
    )
    __getattr__ = renamed_names(__getattr__, Position="QueuePosition")
