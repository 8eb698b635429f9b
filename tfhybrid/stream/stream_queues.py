"""The queues of a stream, as `queues` in `stream.yaml` declares them."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from tfhybrid.core.yaml_file import YamlFile
from tfhybrid.errors import ConfigError
from tfhybrid.stream.provider.served_queues import partition_name
from tfhybrid.stream.queues.queue import Queue, Topic
from tfhybrid.stream.queues.queue_address import open_queue
from tfhybrid.stream.stream_files import StreamFiles

# Settings of librdkafka on which it depends that each row is trained once.
_FIXED = (
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.partition.eof",
    "isolation.level",
    "transactional.id",
)
_KAFKA = "kafka://"


@dataclasses.dataclass(frozen=True)
class KafkaPlace:
    """A place of a queue in Kafka.

    Args:
        kafka: Addresses of brokers, topic and partition, `HOST:PORT/TOPIC[/PARTITION]`; without a
            partition if others write the topic.
        ours: Whether the provider makes and writes the topic. Otherwise other programs do, nothing
            is written to its brokers, and each of its partitions is a queue, `QUEUE/NUMBER`.
            Default `True`.
        settings: Path of a YAML file with settings of librdkafka by name, for example for TLS and
            SASL. Default none.

    Raises:
        ConfigError: A field has another type, or `kafka` another form.
    """

    kafka: str
    ours: bool | str = True
    settings: str | None = None

    def __post_init__(self) -> None:
        if self.ours in ("yes", "no"):  # texts in YAML 1.2
            object.__setattr__(self, "ours", self.ours == "yes")
        if not isinstance(self.ours, bool):
            raise ConfigError(f"ours must be yes or no. Received: {self.ours!r}")
        parts = str(self.kafka).split("/")
        if len(parts) not in ((2, 3) if self.ours else (2,)) or not all(parts):
            raise ConfigError(
                "kafka must have the form HOST:PORT/TOPIC, and may end in /PARTITION if `ours` is "
                f"not `no`. Received: {self.kafka!r}"
            )

    @functools.cached_property
    def client_settings(self) -> dict[str, Any]:
        """Settings of librdkafka from the file.

        Raises:
            ConfigError: The file cannot be read, is no mapping, or has a setting on which it
                depends that each row is trained once.
        """
        if self.settings is None:
            return {}
        content = YamlFile(self.settings).content
        if not isinstance(content, dict) or set(_FIXED) & set(content):
            raise ConfigError(
                f"{self.settings} must be a mapping from settings of librdkafka to values, without "
                f"{', '.join(_FIXED)}. Received: "
                f"{[*content] if isinstance(content, dict) else repr(content)}"
            )
        return dict(content)

    def topic(self) -> Topic:
        """Returns the topic, which other programs write.

        Raises:
            ConfigError: The file of settings is not valid.
            UnsupportedError: confluent-kafka is not installed.
        """
        from tfhybrid.stream.queues.kafka_queue import KafkaTopic

        servers, topic = self.kafka.split("/")
        return KafkaTopic(servers, topic, settings=self.client_settings)


class StreamQueues:
    """The queues of a stream, by name. Immutable.

    Args:
        declared: Address of each queue as `open_queue` takes it, or fields of `KafkaPlace`, by
            name. Other queues are directories.
        folder: Folder of the stream.

    Raises:
        ConfigError: Fields of a queue are not valid.
    """

    def __init__(
        self, declared: Mapping[str, str | Mapping[str, Any]], folder: str | os.PathLike[str]
    ) -> None:
        self._files = StreamFiles(folder)
        self._addresses = {name: at for name, at in declared.items() if isinstance(at, str)}
        self._places = {
            name: _place(name, fields)
            for name, fields in declared.items()
            if not isinstance(fields, str)
        }

    @property
    def others(self) -> dict[str, KafkaPlace]:
        """Places of the topics that other programs write, by the name of their queue."""
        return {name: place for name, place in self._places.items() if not place.ours}

    @property
    def committed(self) -> list[str]:
        """Names of the queues in Kafka that the provider writes."""
        places = [name for name, place in self._places.items() if place.ours]
        return [*places, *(name for name, at in self._addresses.items() if at.startswith(_KAFKA))]

    def address(self, name: str) -> str:
        """Returns the address of a queue, which `open_queue` opens. Does not check that it is one.

        Args:
            name: Name of the queue, or of a partition. Without an entry in `queues` it is a
                directory.
        """
        place, number = self._found(name)
        if place is not None:
            return f"{_KAFKA}{place.kafka}{number and f'/{number}'}"
        return self._addresses.get(name, str(self._files.queue(name)))

    def open(self, name: str, *, write: bool = False, fsync: str = "always") -> Queue:
        """Opens a queue, or a partition of a topic. The caller closes it.

        Args:
            name: Name of the queue, or of the partition.
            write: Whether this process appends. Default `False`.
            fsync: Time at which a directory reaches the disk, as in `LogQueue`. Default `"always"`.

        Raises:
            ConfigError: The address or the file of settings is not valid.
            StreamError, NameTakenError, CorruptFileError, OSError, UnsupportedError: As in
                `open_queue`.
        """
        place, number = self._found(name)
        if place is not None and not place.ours:
            return place.topic().open(int(number))
        address = self.address(name)
        if place is not None:
            return open_queue(address, write=write, settings=place.client_settings)
        choices = {} if address.startswith(_KAFKA) else {"fsync": fsync}
        return open_queue(address, write=write, **choices)

    def names(self, name: str) -> list[str]:
        """Returns the names of a topic's partitions as the broker has them; else the name itself.

        Args:
            name: Name of a queue in `stream.yaml`.

        Raises:
            StreamError: The topic does not exist, or the broker cannot be reached.
        """
        if name not in self.others:
            return [name]
        count = self.others[name].topic().state().partitions
        return [partition_name(name, number) for number in range(count)]

    def _found(self, name: str) -> tuple[KafkaPlace | None, str]:
        """Returns the place of a queue, and the number if it is a partition of a topic."""
        topic, _, number = name.rpartition("/")
        if topic in self.others:
            return self.others[topic], number
        return self._places.get(name), ""


def _place(name: str, fields: Mapping[str, Any]) -> KafkaPlace:
    try:  # `fields` may be anything that YAML has
        return KafkaPlace(**fields)
    except (TypeError, ConfigError) as error:
        raise ConfigError(
            f"Queue {name} must have an address, or the fields kafka, ours and settings: {error}"
        ) from error
