"""The function that opens a queue by its address."""

from __future__ import annotations

from typing import Any

from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Queue


def open_queue(address: str, *, write: bool = False, **settings: Any) -> Queue:
    """Opens a queue. The caller closes it.

    Args:
        address: Path of a directory, or `kafka://HOST:PORT/TOPIC[/PARTITION]`.
        write: Whether this process appends. A queue has one writer at a time. Default `False`.
        **settings: Further arguments of `LogQueue` or `KafkaQueue`.

    Returns:
        A `LogQueue` or a `KafkaQueue`.

    Raises:
        StreamError: The directory does not exist, or the broker of a queue to write cannot be
            reached. A Kafka queue that is only read is first reached when it is read.
        NameTakenError: The queue shall be written, and another process writes the directory.
        ConfigError: The address of a Kafka queue, or a setting, has the wrong form.
        UnsupportedError: The address is Kafka's, and confluent-kafka is not installed.
        CorruptFileError: The queue shall be written, and its newest file is damaged.
        OSError: The queue shall be written, and its directory cannot be.
        confluent_kafka.KafkaException: librdkafka refuses a setting.

    Example:

    ```python
    queue = tfhybrid.stream.open_queue("kafka://broker:9092/clicks.video")
    ```
    """
    if address.startswith("kafka://"):
        from tfhybrid.stream.queues.kafka_queue import KafkaQueue, settings_of

        servers, topic, partition = settings_of(address)
        return KafkaQueue(servers, topic, partition=partition, write=write, **settings)
    return LogQueue(address, write=write, **settings)
