"""Queues stored in partitions of Apache Kafka topics.

Importing this module raises `UnsupportedError` if confluent-kafka is not installed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from tfhybrid._deprecated import renamed_arguments
from tfhybrid.errors import (
    ConfigError,
    DataError,
    NameTakenError,
    PositionLostError,
    StreamError,
    TfhybridError,
    UnsupportedError,
)
from tfhybrid.stream.queues.queue import (
    Queue,
    Record,
    Slice,
    StoredRecord,
    Topic,
    TopicState,
)
from tfhybrid.stream.queues.rows import NO_ROWS

try:
    import confluent_kafka
    import confluent_kafka.admin
except ImportError as error:
    raise UnsupportedError("Kafka queues need: pip install 'tfhybrid[kafka]'") from error

_PAUSE_SECONDS = 0.2
_FENCED = (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED)

# A message of confluent_kafka. The library's annotations say that a message read has no offset.
_Message = Any


class KafkaQueue(Queue):
    """A partition of a Kafka topic, read at explicit offsets and written in transactions.

    Not thread-safe. Readers use `assign`, never a consumer group: no rebalance moves them, and the
    offsets that the broker stores for them are not used. A new writer of a partition fences its
    predecessor, so a process that was believed dead cannot append any more: `append` raises
    `NameTakenError` from then on.

    Args:
        servers: Addresses of the brokers, `host:port`, separated by commas.
        topic: Name of the topic. If it does not exist, a writer creates it with all partitions up
            to `partition`.
        partition: Number of the partition. Default 0.
        write: Whether this process appends. Default `False`.
        timeout_seconds: Maximum time to wait for an answer of the broker, in seconds. Default 30.
        settings: Additional settings for librdkafka, for example for TLS. Default none.

    Raises:
        StreamError: This process writes, and the broker cannot be reached or the topic cannot be
            created. A reader reaches the broker when it first reads.
        confluent_kafka.KafkaException: librdkafka refuses a setting.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        partition: int = 0,
        write: bool = False,
        timeout_seconds: float = 30.0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._settings = _client_settings(servers, settings)
        self._partition = confluent_kafka.TopicPartition(topic, partition)
        self._servers = servers
        self._timeout = timeout_seconds
        self._write = write
        self._producer: confluent_kafka.Producer | None = None
        self._committers: dict[str, confluent_kafka.Consumer] = {}
        self._appended_to = 0
        self._fenced = False  # whether another process writes now
        self._next: int | None = None  # offset of the consumer
        if write:
            self._make_topic(topic)
        self._consumer = confluent_kafka.Consumer(
            {
                "group.id": "tfhybrid",  # required by the client; the group has no members
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,  # a seek waits until the fetch in progress ends
                **self._settings,
            }
        )
        if write:
            self._open_producer()

    @property
    @override
    def name(self) -> str:
        return f"{self._partition.topic}/{self._partition.partition}"

    @override
    def append(self, records: Sequence[Record]) -> int:
        if not self._write:
            raise StreamError(
                f"Queue {self.name} is open for reading only. Open it with write=True to append"
            )
        if self._fenced:  # another producer of ours would fence the newer writer
            raise self._taken()
        producer = self._producer or self._open_producer()
        reports: list[Any] = []
        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    self._partition.topic,
                    record.payload,
                    partition=self._partition.partition,
                    headers=dict(record.attributes),
                    on_delivery=lambda error, message: reports.append(error or message.offset()),
                )
            producer.flush(self._timeout)
            producer.commit_transaction(self._timeout)
        except (confluent_kafka.KafkaException, BufferError, SystemError) as error:
            # Whether the transaction was committed is settled when the next producer opens.
            self._producer = None
            raise self._refused(error, records) from error
        self._appended_to = max(reports) + 1
        return self._appended_to

    @override
    @renamed_arguments(most="max_records")
    def read(self, offset: int, *, max_records: int = 1000, wait_seconds: float = 0.0) -> Slice:
        self._seek(offset)
        until = time.monotonic() + wait_seconds
        records: list[StoredRecord] = []
        while len(records) < max_records:
            message = self._poll(0.0 if records else max(until - time.monotonic(), 0.0))
            if message is None:
                break
            if isinstance(message, int):  # the offset of the end
                self._next = max(message, self._next or 0)
                if records or self._next > offset or time.monotonic() >= until:
                    break
                continue
            at = message.offset()
            records.append(StoredRecord(at, self._record(message)))
            self._next = at + 1
        assert self._next is not None
        return Slice(tuple(records), self._next)

    @override
    def begin(self) -> int:
        return self._offset_of(confluent_kafka.OFFSET_BEGINNING)

    @override
    def end(self) -> int:
        if self._write and self._producer is None and not self._fenced:
            self._open_producer()  # waits until the last transaction is committed or aborted
        # A transaction is durable shortly before readers see it.
        return max(self._offset_of(confluent_kafka.OFFSET_END), self._appended_to)

    def commit(self, group: str, offset: int) -> None:
        """Stores an offset of a consumer group in the broker, for monitors of lag only.

        Waits for its answer.

        Args:
            group: Name of the consumer group.
            offset: Offset of the group's next record.

        Raises:
            StreamError: The broker cannot be reached.
        """
        if group not in self._committers:
            self._committers[group] = confluent_kafka.Consumer(
                {"group.id": group, "enable.auto.commit": False, **self._settings}
            )
        position = confluent_kafka.TopicPartition(
            self._partition.topic, self._partition.partition, offset
        )
        try:
            self._committers[group].commit(offsets=[position], asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise self._failed("commit to", error) from error

    @override
    def close(self) -> None:
        for committer in self._committers.values():
            committer.close()
        self._producer = None
        self._consumer.close()

    def _record(self, message: _Message) -> Record:
        # Headers of other producers may have any bytes.
        headers = {
            name: (value or b"").decode(errors="backslashreplace")
            for name, value in message.headers() or ()
        }
        return Record(message.value() or b"", headers)

    def _seek(self, offset: int) -> None:
        if self._next != offset:
            begin, end = self.begin(), self.end()
            if not begin <= offset <= end:
                raise PositionLostError(
                    f"Queue {self.name} cannot be read from offset {offset}: it has offsets "
                    f"{begin} to {end}. Keep records for longer, or skip the lost ones"
                )
            at = confluent_kafka.TopicPartition(
                self._partition.topic, self._partition.partition, offset
            )
            self._consumer.assign([at])
            self._next = offset

    def _poll(self, seconds: float) -> _Message | int | None:
        """Polls the consumer.

        Args:
            seconds: Maximum time to wait, in seconds.

        Returns:
            A message; the offset of the end, if the consumer is there; or `None` on timeout.

        Raises:
            PositionLostError: Retention has removed the record at the consumer's offset.
            StreamError: The broker reports another error.
        """
        message: _Message = self._consumer.poll(seconds)
        error = None if message is None else message.error()
        if error is None:
            return message
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            return message.offset()
        at, self._next = self._next, None
        if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
            raise PositionLostError(
                f"Queue {self.name} cannot be read from offset {at}: it has offsets "
                f"{self.begin()} to {self.end()}. Keep records for longer, or skip the lost ones"
            )
        raise self._failed("read", error)

    def _offset_of(self, which: int) -> int:
        until = time.monotonic() + self._timeout
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(self._partition, self._timeout)
            except confluent_kafka.KafkaException as error:
                # A broker that restarts does not know its partitions at once.
                if time.monotonic() >= until:
                    raise self._failed("reach", error) from error
                time.sleep(_PAUSE_SECONDS)
            else:
                return int(low if which == confluent_kafka.OFFSET_BEGINNING else high)

    def _make_topic(self, topic: str) -> None:
        admin = confluent_kafka.admin.AdminClient(self._settings)
        new_topic = confluent_kafka.admin.NewTopic(topic, self._partition.partition + 1, 1)  # type: ignore[attr-defined]
        future = admin.create_topics([new_topic])[topic]
        try:
            future.result(self._timeout)
        except confluent_kafka.KafkaException as error:
            if _code_of(error) != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed("create", error) from error

    def _open_producer(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "transactional.id": f"tfhybrid.{self.name}",
                "linger.ms": 0,
                **self._settings,
            }
        )
        try:
            producer.init_transactions(self._timeout)
        except confluent_kafka.KafkaException as error:
            raise self._failed("write", error) from error
        self._producer = producer
        return producer

    def _failed(self, verb: str, error: object) -> StreamError:
        return StreamError(f"Cannot {verb} the queue {self.name} at {self._servers}: {error}")

    def _refused(self, error: Exception, records: Sequence[Record]) -> TfhybridError:
        """Returns the error of records that were not appended; notes whether another one writes."""
        # The client raises a SystemError if it fails while it reports deliveries.
        reason = error.__cause__ if isinstance(error, SystemError) else error
        code = _code_of(reason)
        self._fenced = code in _FENCED
        if self._fenced:
            return self._taken()
        if code == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE:
            longest = max(len(record.payload) for record in records)
            return DataError(
                f"A record for the queue {self.name} must not exceed max.message.bytes of its "
                f"topic and message.max.bytes of this client. Put fewer rows into a record. "
                f"Received: {longest} bytes ({error})"
            )
        return self._failed("append to", reason)

    def _taken(self) -> NameTakenError:
        return NameTakenError(
            f"Another process writes the queue {self.name} at {self._servers} now. Stop one of them"
        )


def _client_settings(servers: str, settings: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        # By default a client begins again with its bootstrap servers as soon as all brokers are
        # down: 20 times a second, with a line in the log each time (librdkafka#5546).
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 1000,
        **(settings or {}),
    }


def _code_of(error: object) -> int | None:
    """Returns the code of an error of Kafka; `None` of another one."""
    return error.args[0].code() if isinstance(error, confluent_kafka.KafkaException) else None


class ForeignPartition(KafkaQueue):
    """A partition of a topic that other programs write, for reading only. Not thread-safe.

    Keys and headers of its records mean nothing here and are dropped. A record without a value has
    no rows. Its arguments are those of `KafkaQueue`.
    """

    @override
    def _record(self, message: _Message) -> Record:
        value = message.value()
        return Record(NO_ROWS if value is None else value)


class KafkaTopic(Topic):
    """A Kafka topic that other programs write. Thread-safe. Nothing is written to its brokers.

    Args:
        servers: Addresses of the brokers, `host:port`, separated by commas.
        topic: Name of the topic.
        settings: Additional settings for librdkafka, for example for TLS. Default none.
        timeout_seconds: Maximum time to wait for an answer of the broker, in seconds. Default 30.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        settings: dict[str, Any] | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._servers = servers
        self._topic = topic
        self._settings = settings
        self._timeout = timeout_seconds

    @override
    def state(self) -> TopicState:
        settings = _client_settings(self._servers, self._settings)
        admin = confluent_kafka.admin.AdminClient(settings)
        topics = confluent_kafka.TopicCollection([self._topic])
        futures = admin.describe_topics(topics, request_timeout=self._timeout)
        try:
            description = futures[self._topic].result()
        except confluent_kafka.KafkaException as error:
            if _code_of(error) == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise StreamError(
                    f"Topic {self._topic} must exist at {self._servers}, because `ours: no` says "
                    f"that others make it. Received: {error}"
                ) from error
            raise StreamError(
                f"Cannot describe the topic {self._topic} at {self._servers}: {error}"
            ) from error
        return TopicState(str(description.topic_id), len(description.partitions))

    @override
    def open(self, partition: int) -> ForeignPartition:
        return ForeignPartition(
            self._servers, self._topic, partition=partition, settings=self._settings
        )


def settings_of(text: str) -> tuple[str, str, int]:
    """Splits the address of a Kafka queue into servers, topic and partition.

    Args:
        text: Address, `kafka://HOST:PORT/TOPIC[/PARTITION]`. The partition defaults to 0.

    Returns:
        The addresses of the servers, the topic, and the number of the partition.

    Raises:
        ConfigError: The address has another form, or the partition is not a number.
    """
    parts = text.removeprefix("kafka://").split("/")
    number = parts[2] if len(parts) == 3 else "0"
    is_number = number.isascii() and number.isdecimal()
    if not (text.startswith("kafka://") and len(parts) in (2, 3) and all(parts) and is_number):
        raise ConfigError(
            "The address of a Kafka queue must have the form kafka://HOST:PORT/TOPIC[/PARTITION]. "
            f"Received: {text!r}"
        )
    return parts[0], parts[1], int(number)
