"""A topic that others write, on a real broker: trained through kills, and never written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.roles.clusters import until
from tests.support.stream.broker import Broker
from tests.support.stream.foreign_site import check_kills
from tfhybrid.errors import StreamError
from tfhybrid.stream.queues.kafka_queue import KafkaTopic
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.rows import NO_ROWS

KILLS = int(os.environ.get("TFHYBRID_FOREIGN_KILLS", "6"))


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    """Creates a topic, and waits until the broker knows its partitions."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def known() -> bool:
        topics = admin.list_topics(timeout=30).topics
        return topic in topics and len(topics[topic].partitions) == partitions

    until(known)


def committed(admin: AdminClient, group: str) -> set[str]:
    """Returns the topics of which a consumer group has committed offsets."""
    asked = ConsumerGroupTopicPartitions(group)
    offsets = admin.list_consumer_group_offsets([asked])[group].result(30)
    return {each.topic for each in offsets.topic_partitions}


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.servers})


def test_keys_headers_and_values(broker: Broker, admin: AdminClient):
    """A header of ours in a record of others means nothing, and a record without value no row."""
    create(admin, "headers", 1)
    producer = Producer({"bootstrap.servers": broker.servers})
    headers = [("format", b"lines"), ("number", b"\xff"), ("producer", None)]
    producer.produce("headers", b'{"item": 1}', key=b"\xff", headers=headers)
    producer.produce("headers", None, key=b"user")
    producer.produce("headers", b"", key=b"user")
    producer.flush(30)
    queue = KafkaTopic(broker.servers, "headers").open(0)
    records = [record for _, record in queue.read(0, wait_seconds=60).records]
    assert records == [Record(b'{"item": 1}'), Record(NO_ROWS), Record(b"")]
    with pytest.raises(StreamError, match="open for reading only"):
        queue.append([Record(b"{}")])
    queue.close()


def test_the_state_of_a_topic(broker: Broker, admin: AdminClient):
    create(admin, "state", 4)
    topic = KafkaTopic(broker.servers, "state")
    first = topic.state()
    assert first.partitions == 4
    admin.create_partitions([NewPartitions("state", 5)])["state"].result(30)
    until(lambda: topic.state() == (first.id, 5))
    admin.delete_topics(["state"])["state"].result(30)
    until(lambda: "state" not in admin.list_topics(timeout=30).topics)
    with pytest.raises(StreamError, match="Topic state must exist"):
        topic.state()
    create(admin, "state", 4)
    assert topic.state().id != first.id
    with pytest.raises(StreamError, match="Topic other must exist"):
        KafkaTopic(broker.servers, "other").state()
    assert "other" not in admin.list_topics(timeout=30).topics
    with pytest.raises(StreamError, match="Cannot describe the topic state"):
        KafkaTopic("127.0.0.1:1", "state", timeout_seconds=0.5).state()


def test_the_end_is_before_an_open_transaction(broker: Broker, admin: AdminClient):
    create(admin, "open", 1)
    others = Producer({"bootstrap.servers": broker.servers, "transactional.id": "others"})
    others.init_transactions(30)
    queue = KafkaTopic(broker.servers, "open").open(0)
    for end, ends in ((2, others.commit_transaction), (4, others.abort_transaction)):
        others.begin_transaction()
        others.produce("open", b"{}", partition=0)
        others.flush(30)
        assert queue.end() == end - 2  # no row that could be leased
        ends(30)
        until(lambda end=end: queue.end() == end)
    assert len(queue.read(0, wait_seconds=60).records) == 1
    queue.close()


@pytest.mark.timeout(900)
def test_each_row_is_in_the_weights_once(
    broker: Broker, admin: AdminClient, tmp_path: Path, shm_directory: Path
):
    create(admin, "clicks", 4)
    check_kills(KILLS, broker, tmp_path, shm_directory)
    assert "clicks" not in committed(admin, "tfhybrid.ads")  # other tests commit offsets of queues
