"""The processes of a stream whose topic others write, killed at random while rows come."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support.roles.clusters import until
from tests.support.stream.broker import Broker
from tests.support.stream.counting_trainer import SPEC
from tests.support.stream.killed_site import Site
from tests.support.stream.stream_file import write_stream
from tfhybrid.errors import StreamError
from tfhybrid.stream.audit import audit
from tfhybrid.stream.queues.kafka_queue import KafkaTopic
from tfhybrid.stream.stream_settings import StreamSettings

LOGGER = logging.getLogger(__name__)

TOPIC = "clicks"
ROWS_A_KILL = 200
_PATIENCE = 300.0
_SEED = 11


class ConsoleProducer:
    """Kafka's console producer; a new one if it has given up because the broker was killed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._process: subprocess.Popen | None = None

    def write(self, item: int) -> None:
        """Writes a row with a key, and headers of names that ours have, too."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._broker.producer(TOPIC)
        row = json.dumps({"item": item})
        assert self._process.stdin is not None
        self._process.stdin.write(f"format:lines,number:{item}\tuser-{item}\t{row}\n".encode())
        self._process.stdin.flush()

    def finish(self) -> None:
        """Waits until all rows are in the topic."""
        assert self._process is not None
        self._process.communicate(timeout=_PATIENCE)


def check_kills(kills: int, broker: Broker, folder: Path, memory: Path) -> None:
    """Kills a process, or the broker, so many times; each row of the topic is trained once.

    Args:
        kills: How many.
        broker: Has the topic, of four partitions; a fifth is added.
        folder: Of all that the stream keeps.
        memory: Of its stores.
    """
    (folder / "token").write_text("a secret of the test")
    (folder / "stream").mkdir()
    config = write_stream(
        *(folder, memory, {"item": "int64"}),
        routes={"models": {"ads": [TOPIC]}},
        queues={TOPIC: {"kafka": f"{broker.servers}/{TOPIC}", "ours": False}},
        lease={"seconds": 1.0, "first_rows": 16},
        expires_seconds=2.0,
        max_deaths=None,
        save_seconds=0.5,
        publish={"ads": {"folder": str(folder / "published"), "seconds": 1.0}},
    )
    site = Site(folder, config)
    try:
        _kill(site, kills, broker)
        _assert_trained(site, _topic_counts(broker, kills * ROWS_A_KILL))
    finally:
        site.end()


def _kill(site: Site, kills: int, broker: Broker) -> None:
    dice = random.Random(_SEED)
    victims = ["provider", "trainer 1", "sync", "broker", "trainer 2"]
    producer = ConsoleProducer(broker)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for number in range(kills):
        items = range(number * ROWS_A_KILL, (number + 1) * ROWS_A_KILL)
        victim_at, victim = dice.choice(items), victims[number % len(victims)]
        if number == kills // 2:
            admin.create_partitions([NewPartitions(TOPIC, 5)])[TOPIC].result(60)
        for item in items:
            producer.write(item)
            time.sleep(dice.random() * 0.02)
            if item == victim_at:
                LOGGER.info("kill %d of %d: %s", number + 1, kills, victim)
                if victim == "broker":
                    until(lambda: _works(site, "provider"), _PATIENCE)  # it needs one to start
                    broker.kill()
                    broker.start()
                else:
                    site.kill(victim)
                    site.start(victim)
        site.check()
    producer.finish()


def _works(site: Site, role: str) -> bool:
    try:
        site.works(role)
    except StreamError:
        return False
    return True


def _topic_counts(broker: Broker, items: int) -> np.ndarray:
    """Returns how often each item is in the topic: a producer may lose or repeat a record."""
    topic, counts = KafkaTopic(broker.servers, TOPIC), np.zeros(items)
    for number in range(topic.state().partitions):
        with closing(topic.open(number)) as queue:
            offset, end = queue.begin(), queue.end()
            while offset < end:
                chunk = queue.read(offset, wait_seconds=5.0)
                for _, record in chunk.records:
                    counts[json.loads(record.payload)["item"]] += 1
                offset = chunk.next_offset
    assert counts.sum() > items / 2
    return counts


def _assert_trained(site: Site, expected: np.ndarray) -> None:
    settings = StreamSettings.read(site.config)
    model = settings.remote_model("ads", "test")
    model.open(SPEC, [])
    counts, until = np.zeros(len(expected)), time.monotonic() + _PATIENCE
    while counts.sum() < expected.sum() and time.monotonic() < until:
        site.check()
        time.sleep(0.2)
        counts = model.read({"item": np.arange(len(expected))})[0]["item"][:, 0]
    np.testing.assert_array_equal(counts, expected)
    accounts = audit(settings)
    assert [each.queue for each in accounts] == [f"{TOPIC}/{number}" for number in range(5)]
    assert [each.missing for each in accounts] == [0] * 5
    assert sum(each.trained for each in accounts) == expected.sum()
