"""A queue that is a partition of a topic of Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tfhybrid.errors import ConfigError, PositionLostError, StreamError, UnsupportedError
from tfhybrid.stream.queue import Record, Slice, StoredRecord

try:
    import confluent_kafka
    import confluent_kafka.admin
except ImportError as error:
    raise UnsupportedError("Kafka queues need: pip install 'tfhybrid[kafka]'") from error

_PAUSE_SECONDS = 0.2

_Message = Any  # of confluent_kafka, whose annotations say that a message read has no offset


class KafkaQueue:
    """A partition of a topic, read at offsets of our own and written in transactions.

    Readers use `assign`, never a consumer group: no rebalance moves them, and what the broker
    thinks of their offsets decides nothing. A new writer of a partition fences the one before it,
    so that a process which was believed dead cannot append any more.

    Args:
        servers: `host:port`, several with commas.
        topic: Its name. A writer makes it, with one partition, if it does not exist.
        partition: Of the topic.
        write: Whether this process appends.
        timeout_seconds: How long the broker may take to answer.
        settings: More settings of librdkafka, say for TLS.

    Raises:
        UnsupportedError: confluent-kafka is not installed.
        StreamError: The broker cannot be reached, or has no such topic.
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
        self._settings = {"bootstrap.servers": servers, **(settings or {})}
        self._partition = confluent_kafka.TopicPartition(topic, partition)
        self._servers = servers
        self._timeout = timeout_seconds
        self._write = write
        self._producer: confluent_kafka.Producer | None = None
        self._committers: dict[str, confluent_kafka.Consumer] = {}
        self._appended_to = 0
        self._next: int | None = None  # where the consumer is
        if write:
            self._make_topic(topic)
        self._consumer = confluent_kafka.Consumer(
            {
                "group.id": "tfhybrid",  # wanted by the client; never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,  # a new position waits for the fetch that is under way
                **self._settings,
            }
        )
        if write:
            self._open_producer()

    @property
    def name(self) -> str:
        """Of topic and partition."""
        return f"{self._partition.topic}/{self._partition.partition}"

    def append(self, records: Sequence[Record]) -> int:
        """Appends records, all or none; see `Queue`."""
        if not self._write:
            raise StreamError(f"The queue {self.name} is open for reading alone. Open it to write")
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
        except (confluent_kafka.KafkaException, BufferError) as error:
            # The next producer settles what became of the transaction.
            self._producer = None
            raise self._failed("append to", error) from error
        self._appended_to = max(reports) + 1
        return self._appended_to

    def read(self, offset: int, *, most: int = 1000, wait_seconds: float = 0.0) -> Slice:
        """Reads records; see `Queue`."""
        self._seek(offset)
        until = time.monotonic() + wait_seconds
        found: list[StoredRecord] = []
        while len(found) < most:
            message = self._poll(0.0 if found else max(until - time.monotonic(), 0.0))
            if message is None:
                break
            if isinstance(message, int):  # the end
                self._next = max(message, self._next or 0)
                if found or self._next > offset or time.monotonic() >= until:
                    break
                continue
            at = message.offset()
            found.append(StoredRecord(at, _record(message)))
            self._next = at + 1
        assert self._next is not None
        return Slice(tuple(found), self._next)

    def begin(self) -> int:
        """Returns the offset of the oldest record that is kept."""
        return self._offset_of(confluent_kafka.OFFSET_BEGINNING)

    def end(self) -> int:
        """Returns the offset behind the last record."""
        if self._write and self._producer is None:
            self._open_producer()  # waits until it is settled what became of a transaction
        # A transaction is safe a little before readers see it.
        return max(self._offset_of(confluent_kafka.OFFSET_END), self._appended_to)

    def commit(self, group: str, offset: int) -> None:
        """Tells the broker how far a group is, for monitors of lag; nobody reads from there.

        Args:
            group: Name of the consumer group.
            offset: Of the next record.

        Raises:
            StreamError: The broker cannot be reached.
        """
        if group not in self._committers:
            self._committers[group] = confluent_kafka.Consumer(
                {"group.id": group, "enable.auto.commit": False, **self._settings}
            )
        place = confluent_kafka.TopicPartition(
            self._partition.topic, self._partition.partition, offset
        )
        try:
            self._committers[group].commit(offsets=[place], asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise self._failed("commit to", error) from error

    def close(self) -> None:
        """Closes the connections."""
        for committer in self._committers.values():
            committer.close()
        self._producer = None
        self._consumer.close()

    def _seek(self, offset: int) -> None:
        if self._next != offset:
            begin, end = self.begin(), self.end()
            if not begin <= offset <= end:
                raise PositionLostError(
                    f"Queue {self.name} was to be read from offset {offset}, and has those from "
                    f"{begin} to {end}. Keep records for longer, or skip what is lost"
                )
            at = confluent_kafka.TopicPartition(
                self._partition.topic, self._partition.partition, offset
            )
            self._consumer.assign([at])
            self._next = offset

    def _poll(self, seconds: float) -> _Message | int | None:
        """Returns a message, or the offset of the end where it has been reached, or `None`."""
        message: _Message = self._consumer.poll(seconds)
        error = None if message is None else message.error()
        if error is None:
            return message
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            return message.offset()
        at, self._next = self._next, None
        if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
            raise PositionLostError(
                f"Queue {self.name} was to be read from offset {at}, and has those from "
                f"{self.begin()} to {self.end()}. Keep records for longer, or skip what is lost"
            )
        raise StreamError(f"Cannot read the queue {self.name} at {self._servers}: {error}")

    def _offset_of(self, which: int) -> int:
        until = time.monotonic() + self._timeout
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(self._partition, self._timeout)
            except confluent_kafka.KafkaException as error:
                # A broker that starts again does not know its partitions at once.
                if time.monotonic() >= until:
                    raise self._failed("reach", error) from error
                time.sleep(_PAUSE_SECONDS)
            else:
                return int(low if which == confluent_kafka.OFFSET_BEGINNING else high)

    def _make_topic(self, topic: str) -> None:
        admin = confluent_kafka.admin.AdminClient(self._settings)
        made = confluent_kafka.admin.NewTopic(topic, self._partition.partition + 1, 1)  # type: ignore[attr-defined]
        future = admin.create_topics([made])[topic]
        try:
            future.result(self._timeout)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed("make", error) from error

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

    def _failed(self, what: str, error: Exception) -> StreamError:
        return StreamError(f"Cannot {what} the queue {self.name} at {self._servers}: {error}")


def _record(message: _Message) -> Record:
    headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
    return Record(message.value() or b"", headers)


def settings_of(text: str) -> tuple[str, str, int]:
    """Returns servers, topic and partition of `kafka://HOST:PORT/TOPIC[/PARTITION]`.

    Raises:
        ConfigError: It has another form.
    """
    parts = text.removeprefix("kafka://").split("/")
    if not text.startswith("kafka://") or len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(
            f"A queue of Kafka is kafka://HOST:PORT/TOPIC[/PARTITION]. Received: {text!r}"
        )
    return parts[0], parts[1], int(parts[2]) if len(parts) == 3 else 0
