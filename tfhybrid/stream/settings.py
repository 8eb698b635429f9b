"""The file that describes a stream: its queues, columns, routes, models and addresses."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tfhybrid.core.yaml_file import read_yaml
from tfhybrid.errors import ConfigError
from tfhybrid.nodes.cluster_file import read_role
from tfhybrid.nodes.node_options import read_token
from tfhybrid.row_policy import Admission, Eviction, native_policy
from tfhybrid.stream.dead_letters import DeadLetters
from tfhybrid.stream.lease_length import LeaseLength
from tfhybrid.stream.numbered_writer import NumberedWriter
from tfhybrid.stream.offset_committer import CommitsOffsets, OffsetCommitter
from tfhybrid.stream.opening import open_queue
from tfhybrid.stream.provider import Provider
from tfhybrid.stream.publisher import PublishRules
from tfhybrid.stream.queue_reader import QueueReader
from tfhybrid.stream.remote import Remote
from tfhybrid.stream.routes import Routes
from tfhybrid.stream.served_queue import ServedQueue
from tfhybrid.stream.sync_unit import RemoteModel, SyncUnit


@dataclasses.dataclass(frozen=True)
class StreamSettings:
    """What `stream.yaml` says.

    Args:
        folder: Of what provider and sync unit keep.
        provider: `host:port` where the provider listens.
        sync: `host:port` where the sync unit listens.
        token_file: A file with a secret; who cannot show it is turned away.
        columns: Type of each column, as Arrow names it. One with `?` behind it may be null.
        routes: Fields of `Routes`.
        queues: Address of each queue; by default a directory in `folder`.
        lease: Fields of `LeaseLength`.
        expires_seconds: After which a lease that nobody renews is another trainer's.
        staleness: Of `LeaseBook`.
        most_behind: Of `ServedQueue`.
        on_lost: Of `QueueReader`.
        bad_rows: How many are borne.
        own: The queue of each trainer that asks for its own.
        memory: Directory of the stores, in shared memory.
        fsync: Of journals, and of queues that are directories.
        save_seconds: How often the sync unit writes a base of each model that has changed, and
            cuts its journal.
        policies: Which keys get a row and keep it, by model and table: `admission` and `eviction`,
            with the fields of `tfhybrid.Admission` and `tfhybrid.Eviction`.
        trainers: What `tfhybrid stream run` starts, by a name: fields of
            `tfhybrid.nodes.cluster_file.Role`.
        publish: Fields of `PublishRules`, by model.
        event_time: The column that says when a row happened, in seconds since 1970.
    """

    folder: str
    provider: str
    sync: str
    token_file: str
    columns: Mapping[str, str]
    routes: Mapping[str, Any]
    queues: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lease: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    expires_seconds: float = 60.0
    staleness: int | None = None
    most_behind: int | None = None
    on_lost: str = "raise"
    bad_rows: int = 1000
    own: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory: str = "/dev/shm"
    fsync: str = "always"
    save_seconds: float = 600.0
    policies: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    trainers: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    publish: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    event_time: str | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> StreamSettings:
        """Reads the file.

        Raises:
            ConfigError: It cannot be read, is not YAML, lacks a field, or has one that is unknown.
        """
        said = read_yaml(path)
        try:
            settings = cls(**said)
            models = Routes(**settings.routes).models
            LeaseLength(**settings.lease)
            settings._check_publish(models)
            assert settings.schema
            if settings.save_seconds <= 0:
                raise ValueError(f"save_seconds is positive. Received: {settings.save_seconds}")
            assert settings.native_policies is not None
            for name, said in settings.trainers.items():
                read_role(Path(path), name, said)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path} does not describe a stream: {error}") from error
        return settings

    def _check_publish(self, models: Collection[str]) -> None:
        unknown = sorted(set(self.publish_rules) - set(models))
        if unknown:
            raise ValueError(f"publish has models of {sorted(models)}. Received: {unknown}")
        if self.event_time is not None and self.event_time not in self.columns:
            raise ValueError(
                f"event_time must be one of {sorted(self.columns)}. Received: {self.event_time}"
            )

    @property
    def publish_rules(self) -> dict[str, PublishRules]:
        """What is published, by model."""
        return {model: PublishRules(**fields) for model, fields in self.publish.items()}

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return pa.schema(
            [
                pa.field(name, _type(text.rstrip("?")), nullable=text.endswith("?"))
                for name, text in self.columns.items()
            ]
        )

    @property
    def token(self) -> str:
        """The secret.

        Raises:
            ConfigError: There is none.
        """
        return f"stream1.{read_token(Path(self.token_file))}"

    @property
    def native_policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Policies as of `SyncUnit`.

        Raises:
            ConfigError: A rule cannot be, or a model is unknown.
        """
        unknown = sorted(set(self.policies) - set(self.routes["models"]))
        if unknown:
            raise ConfigError(f"Policies are those of models of `routes`. Received: {unknown}")
        return {
            model: {table: self._policy(said) for table, said in tables.items()}
            for model, tables in self.policies.items()
        }

    def _policy(self, said: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(said) - {"admission", "eviction"})
        if unknown or not said:
            raise ConfigError(f"A policy is admission, eviction, or both. Received: {dict(said)}")
        admission = Admission(**said["admission"]) if "admission" in said else None
        eviction = Eviction(**said["eviction"]) if "eviction" in said else None
        by_time = eviction is not None and eviction.unseen_time is not None
        if by_time and self.event_time is None:
            raise ConfigError(
                "unseen_time wants `event_time: COLUMN`, the column that says when a row happened. "
                f"Received: {said}, and no event_time"
            )
        return native_policy(admission, eviction)

    def queue_address(self, name: str) -> str:
        """Returns where a queue is: a directory, or `kafka://...`."""
        return self.queues.get(name, str(Path(self.folder) / "queues" / name))

    def sync_unit(self) -> SyncUnit:
        """Opens the sync unit in this process."""
        names = Routes(**self.routes).models
        return SyncUnit(
            names,
            Path(self.folder) / "models",
            Path(self.memory),
            fsync=self.fsync,
            save_seconds=self.save_seconds,
            policies=self.native_policies,
            publish=self.publish_rules,
        )

    def remote_model(self, name: str, caller: str) -> RemoteModel:
        """Returns a target model of the sync unit's process; `caller` is who asks."""
        return RemoteModel(Remote(self.sync, self.token, caller, "sync unit"), name)

    def open_provider(self) -> Provider:
        """Opens the provider in this process; the sync unit must be there."""
        routes = Routes(**self.routes)
        folder = Path(self.folder)
        letters = DeadLetters(folder / "bad-rows.jsonl", limit=self.bad_rows)
        weights = {name: self.remote_model(name, "provider") for name in routes.models}
        queues = {}
        for name in dict.fromkeys(routes.queues.values()):
            address = self.queue_address(name)
            choices = {} if address.startswith("kafka://") else {"fsync": self.fsync}
            queue = open_queue(address, write=True, **choices)
            queues[name] = ServedQueue(
                name,
                NumberedWriter(queue, folder / f"producers-{name}.json"),
                QueueReader(queue, self.schema, letters, on_lost=self.on_lost),
                {model: weights[model] for model, of in routes.models.items() if name in of},
                staleness=self.staleness,
                seconds=self.expires_seconds,
                most_behind=self.most_behind,
            )
        return Provider(
            queues, self.schema, routes, letters, length=LeaseLength(**self.lease), own=self.own
        )

    def offset_committer(self) -> OffsetCommitter:
        """Opens what commits offsets of a broker's queues after bases; behind `open_provider`."""
        models = Routes(**self.routes).models
        return OffsetCommitter(
            {
                name: cast("CommitsOffsets", open_queue(address))
                for name, address in self.queues.items()
                if address.startswith("kafka://")  # a directory has no monitors
            },
            {name: self.remote_model(name, "offsets").saved for name in models},
            self.save_seconds / 10,
        )


def _type(text: str) -> pa.DataType:
    if text.startswith("list<") and text.endswith(">"):
        return pa.list_(_type(text[5:-1]))
    return pa.type_for_alias(text)
