"""Queues of a real broker, which dies and comes back."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.stream import queue_contract
from tests.support.stream.broker import Broker
from tfhybrid.errors import (
    ConfigError,
    DataError,
    NameTakenError,
    PositionLostError,
    StreamError,
)
from tfhybrid.stream.queues.kafka_queue import KafkaQueue, settings_of
from tfhybrid.stream.queues.numbered_writer import Numbered, NumberedWriter
from tfhybrid.stream.queues.offset_committer import OffsetCommitter, group_of
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.queue_address import open_queue


def test_contract(broker: Broker, tmp_path: Path):
    def queue(name: str, **settings) -> KafkaQueue:
        return KafkaQueue(broker.servers, name, write=True, **settings)

    queue_contract.check_order_and_offsets(queue("order"))
    queue_contract.check_the_end(queue("end"))
    queue_contract.check_numbers(queue("numbers"), tmp_path / "numbers.json")
    queue_contract.check_positions(lambda: queue("positions"), tmp_path / "positions.json")
    reader = open_queue(f"kafka://{broker.servers}/order")
    queue_contract.check_reading_alone(reader)
    assert len(queue_contract.read_all(reader)) == 30


def test_a_new_writer_fences_the_old_one(broker: Broker):
    old = KafkaQueue(broker.servers, "fenced", write=True)
    old.append([Record(b"old")])
    new = KafkaQueue(broker.servers, "fenced", write=True)
    for _ in range(2):  # it doesn't fence the new one in its turn
        with pytest.raises(NameTakenError, match="Another process writes the queue fenced/0"):
            old.append([Record(b"late")])
        assert old.end() > 0
    new.append([Record(b"new")])
    assert [r.payload for r in queue_contract.read_all(new)] == [b"old", b"new"]


def test_an_outage_fills_no_log(capfd: pytest.CaptureFixture[str]):
    queue = KafkaQueue("127.0.0.1:1", "outage", timeout_seconds=3.0)
    with pytest.raises(StreamError, match="Cannot reach the queue outage/0"):
        queue.begin()
    queue.close()
    assert 0 < capfd.readouterr().err.count("Connection refused") < 4


def test_offsets_are_committed_for_monitors_alone(broker: Broker):
    queue = KafkaQueue(broker.servers, "committed", write=True)
    queue.append([Record(b"%d" % i) for i in range(10)])
    saved = {"committed": 4}
    committer = OffsetCommitter({"committed": queue}, {"ads": lambda: saved}, 0.01)
    group = Consumer({"bootstrap.servers": broker.servers, "group.id": group_of("ads")})
    for offset in (4, 7):
        saved["committed"] = offset
        until = time.monotonic() + 60
        while _committed(group) != offset:
            assert time.monotonic() < until
            time.sleep(0.05)
    group.close()
    assert len(queue_contract.read_all(queue)) == 10
    committer.close()


def _committed(group: Consumer) -> int:
    (found,) = group.committed([TopicPartition("committed", 0)], 30)
    return int(found.offset)


def test_a_killed_broker_loses_nothing(broker: Broker):
    queue = KafkaQueue(broker.servers, "killed", write=True, timeout_seconds=60)
    for i in range(20):
        queue.append([Record(b"%d" % i)])
    broker.kill()
    broker.start()
    for i in range(20, 25):
        queue.append([Record(b"%d" % i)])
    assert [r.payload for r in queue_contract.read_all(queue)] == [b"%d" % i for i in range(25)]


def test_a_stopped_broker_is_named_and_what_was_sent_is_stored_once(broker: Broker, tmp_path: Path):
    queue = KafkaQueue(broker.servers, "stopped", write=True, timeout_seconds=10)
    writer = NumberedWriter(queue, tmp_path / "numbers.json")
    sent = [Numbered("web", number, Record(b"%d" % number)) for number in range(6)]
    writer.append(sent[:3])
    broker.send(signal.SIGSTOP)
    try:
        with pytest.raises(StreamError, match=f"the queue stopped/0 at {broker.servers}"):
            writer.append(sent)
    finally:
        broker.send(signal.SIGCONT)
    until = time.monotonic() + 120
    while True:  # as a producer does
        try:
            writer.append(sent)
            break
        except StreamError:
            assert time.monotonic() < until
    assert [r.payload for r in queue_contract.read_all(queue)] == [b"%d" % i for i in range(6)]
    writer.close()


def test_retention_passed_the_position(broker: Broker):
    queue = KafkaQueue(broker.servers, "short", write=True)
    queue.append([Record(b"%d" % i) for i in range(10)])
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for future in admin.delete_records([TopicPartition("short", 0, 5)]).values():
        future.result(30)
    assert queue.begin() == 5
    with pytest.raises(PositionLostError, match="cannot be read from offset 0: it has offsets 5"):
        queue.read(0, wait_seconds=60)
    assert [r.payload for r in queue_contract.read_all(queue, 5)] == [b"5", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("limit", [{}, {"message.max.bytes": 9_000_000}])
def test_a_record_above_the_limit_of_client_or_broker(broker: Broker, limit: dict[str, int]):
    """It is refused by name, as sending it again would not help; the queue is as before."""
    queue = KafkaQueue(broker.servers, f"long{len(limit)}", write=True, settings=limit)
    queue.append([Record(b"before")])
    with pytest.raises(DataError, match=r"Put fewer rows .*Received: 3000000 bytes"):
        queue.append([Record(b"short"), Record(b"x" * 3_000_000)])
    queue.append([Record(b"after")])
    assert [r.payload for r in queue_contract.read_all(queue)] == [b"before", b"after"]


def test_addresses():
    assert settings_of("kafka://a:1,b:2/clicks.video/3") == ("a:1,b:2", "clicks.video", 3)
    for address in ("kafka://a:1", "kafka://a:1/t/x", "kafka://a:1/t/-1", "kafka://a:1/t/²"):
        with pytest.raises(ConfigError, match=r"kafka://HOST:PORT/TOPIC"):
            settings_of(address)


def test_headers_of_other_producers_may_have_any_bytes(broker: Broker, tmp_path: Path):
    queue = KafkaQueue(broker.servers, "foreign", write=True)
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(
        "foreign", b"{}", partition=0, headers=[("number", b"\xff"), ("producer", None)]
    )
    producer.flush(30)
    assert [r.payload for r in queue_contract.read_all(queue)] == [b"{}"]
    writer = NumberedWriter(queue, tmp_path / "numbers.json")
    assert writer.append([Numbered("", 0, Record(b"1"))]) == 1  # no record of producer "" is there
    assert writer.append([Numbered("", 0, Record(b"1"))]) == 0


def test_a_broker_that_is_not_there(broker: Broker):
    with pytest.raises(StreamError, match=r"127\.0\.0\.1:1"):
        KafkaQueue("127.0.0.1:1", "t", timeout_seconds=1).end()
