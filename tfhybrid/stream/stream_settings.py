"""The file that describes a stream: its queues, columns, routes, models and addresses."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tfhybrid._deprecated import renamed_fields, renamed_keys
from tfhybrid.cluster.cluster_file import read_role
from tfhybrid.cluster.node_options import read_token
from tfhybrid.config.row_policy import Admission, Eviction, native_policy
from tfhybrid.core.yaml_file import YamlFile
from tfhybrid.errors import ConfigError
from tfhybrid.rpc.address import parsed_address
from tfhybrid.rpc.remote import Remote
from tfhybrid.rpc.remote_methods import client
from tfhybrid.rpc.tokens import RIGHTS
from tfhybrid.stream.provider.deaths import DeathFile
from tfhybrid.stream.provider.lease_book import StalenessBound
from tfhybrid.stream.provider.lease_length import LeaseLength
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.provider.served_queue import LeaseRules, ServedQueue
from tfhybrid.stream.provider.served_queues import ServedQueues
from tfhybrid.stream.provider.set_aside import SetAside
from tfhybrid.stream.provider.topic_ids import TopicIds
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.numbered_writer import ForeignWriters, NumberedWriter
from tfhybrid.stream.queues.offset_committer import CommitsOffsets, OffsetCommitter
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.stream_files import StreamFiles
from tfhybrid.stream.stream_queues import StreamQueues
from tfhybrid.stream.sync_unit.publisher import PublishRules
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit
from tfhybrid.stream.sync_unit.target_model import TargetModel


@renamed_fields(most_behind="max_behind")
@dataclasses.dataclass(frozen=True)
class StreamSettings:
    """The settings in `stream.yaml`. Immutable. Only `read` checks the fields.

    Args:
        folder: Folder in which the provider and the sync unit store their files.
        provider: Address of the provider, `host:port`.
        sync: Address of the sync unit, `host:port`.
        token_file: Path of a file with a secret. Connections without it are refused.
        columns: Type of each column, as Arrow names it. A `?` after the type allows nulls. Instead
            of the type, a mapping with `type` and fields of `tfhybrid.data.Column`.
        routes: Fields of `Routes`.
        queues: Address of each queue, as in `open_queue`, or fields of `KafkaPlace`, for example
            for a topic that other programs write. Default a directory in `folder`.
        lease: Fields of `LeaseLength`. Default its defaults.
        expires_seconds: Lifetime of a lease that is not renewed, in seconds. After it the rows are
            leased again. Default 60.
        staleness: Maximum number of other updates applied between the read of the weights under a
            lease and the update of that lease, over all queues of a model. Default unlimited.
        max_behind: Maximum lag of the slowest model, in records; beyond it a queue refuses new
            rows. Default unlimited.
        on_lost: Behavior if retention has removed rows that were not read: `"raise"`, or `"skip"`
            to read from the oldest record that is kept. Default `"raise"`.
        bad_rows: Maximum number of bad rows. One more stops the stream. Default 1000.
        max_deaths: Number of trainers that may die under a lease: with this one, its rows are set
            aside until `tfhybrid stream retry`. `None`: they are always leased again. Default 3.
        own: Name of the queue of each trainer that requests its own, by name of the trainer.
            Default none.
        memory: Directory in shared memory for the stores. Default `/dev/shm`.
        fsync: Time at which journals, and queues that are directories, reach the disk: `"always"`
            or `"never"`, as in `LogQueue`. Default `"always"`.
        save_seconds: Time between two bases of a model that has changed, in seconds. A base lets
            the sync unit shorten the journal. Must be positive. Default 600.
        policies: Rules for which keys get and keep a row, by model and table: `admission` and
            `eviction`, with the fields of `tfhybrid.Admission` and `tfhybrid.Eviction`. Default
            none.
        trainers: Trainers that `tfhybrid stream run` starts, by name: fields of
            `tfhybrid.cluster.cluster_file.Role`. Default none.
        publish: Fields of `PublishRules`, by model. Default none: nothing is published.
        event_time: Name of the column with a row's event time, in seconds since 1970. Default none.
        rights: Paths of further files with secrets, by the right that they give: `read` (metrics
            and weights) or `train` (also rows, leases and updates). The secret of `token_file`
            opens everything. Used by the provider, the sync unit and read-only nodes. Default none.
    """

    folder: str
    provider: str
    sync: str
    token_file: str
    columns: Mapping[str, str | Mapping[str, Any]]
    routes: Mapping[str, Any]
    queues: Mapping[str, str | Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    lease: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    expires_seconds: float = 60.0
    staleness: int | None = None
    max_behind: int | None = None
    on_lost: str = "raise"
    bad_rows: int = 1000
    max_deaths: int | None = 3
    own: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory: str = "/dev/shm"
    fsync: str = "always"
    save_seconds: float = 600.0
    policies: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    trainers: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    publish: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    event_time: str | None = None
    rights: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> StreamSettings:
        """Reads and checks a settings file.

        Addresses, `fsync` and `on_lost` are checked where they are used.

        Args:
            path: Path of `stream.yaml`.

        Returns:
            The settings, with defaults for fields that the file lacks.

        Raises:
            ConfigError: The file cannot be read, is not YAML, lacks a field, or has a field that is
                unknown or has an invalid value.
        """
        return cls.of(YamlFile(path))

    @classmethod
    def of(cls, file: YamlFile) -> StreamSettings:
        """Checks the content of a settings file, as `read` does.

        Args:
            file: Content of `stream.yaml`.

        Raises:
            ConfigError: The file lacks a field, or has a field that is unknown or has an invalid
                value.
        """
        fields = file.check(_names(cls), renamed_keys(file.content, most_behind="max_behind"))
        lease = renamed_keys(fields.get("lease", {}), most_rows="max_rows")
        fields["lease"] = file.check(_names(LeaseLength), lease, "lease")
        file.check(_names(Routes)[:-1], fields.get("routes", {}), "routes")
        _check_mappings(file, fields)
        file.check(RIGHTS[:-1], fields.get("rights", {}), "rights")
        for model, rules in fields.get("publish", {}).items():
            file.check(_names(PublishRules), rules, "publish", model)
        try:
            settings = cls(**fields)
            models = settings.queue_routes.models
            _check_routes(settings.queue_routes.columns, settings.schema)
            settings._check_addresses()
            LeaseLength(**settings.lease)
            settings._check_publish(models)
            _check_event_time(settings.event_time, settings.schema)
            if settings.save_seconds <= 0:
                raise ValueError(
                    f"save_seconds must be positive. Received: {settings.save_seconds}"
                )
            if settings.max_deaths is not None and settings.max_deaths < 1:
                raise ValueError(f"max_deaths must be positive. Received: {settings.max_deaths}")
            assert settings.native_policies is not None
            for name, role in settings.trainers.items():
                read_role(file, role, "trainers", name)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{file.path} is not a valid stream.yaml: {error}") from error
        return settings

    def _check_addresses(self) -> None:
        for name in ("provider", "sync"):
            try:
                parsed_address(str(getattr(self, name)))
            except ConfigError as error:
                raise ValueError(f"{name}: {error}") from error

    def _check_publish(self, models: Collection[str]) -> None:
        unknown = sorted(set(self.publish_rules) - set(models))
        if unknown:
            raise ValueError(
                f"The models under publish must be among {sorted(models)}. Received: {unknown}"
            )

    @property
    def publish_rules(self) -> dict[str, PublishRules]:
        """Rules of the published models, by model.

        Raises:
            ConfigError: A rule is out of range.
            TypeError: A rule has an unknown field, or lacks `folder`.
        """
        return {model: PublishRules(**fields) for model, fields in self.publish.items()}

    @functools.cached_property
    def row_columns(self) -> RowColumns:
        """Declared columns of the rows, with the rules for their values.

        Raises:
            ConfigError: There is no column, or a column is not valid.
        """
        return RowColumns.read(self.columns)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows.

        Raises:
            ConfigError: There is no column, or a column is not valid.
        """
        return self.row_columns.schema

    @property
    def token(self) -> str:
        """Token that this process sends to the others.

        Raises:
            ConfigError: The token file cannot be read, or is empty.
        """
        return f"stream1.{read_token(Path(self.token_file))}"

    @property
    def tokens(self) -> dict[str, str]:
        """Right of each token that a process of this stream accepts, by token.

        Raises:
            ConfigError: A token file cannot be read, is empty, or has the token of another one.
        """
        files = {**self.rights, RIGHTS[-1]: self.token_file}
        tokens = {f"stream1.{read_token(Path(file))}": right for right, file in files.items()}
        if len(tokens) < len(files):
            raise ConfigError(
                f"Each right of a stream needs a token of its own. Received: files with equal "
                f"tokens, {files}"
            )
        return tokens

    @functools.cached_property
    def queue_routes(self) -> Routes:
        """Mapping from rows and models to queues, as `routes` declares it.

        Raises:
            ConfigError: It is not valid.
            TypeError: It lacks a field.
        """
        others = tuple(StreamQueues(self.queues, self.folder).others)
        optional: dict[str, Any] = {"columns": (), "queues": {}} if others else {}
        return Routes(**{**optional, **self.routes, "others": others})

    @property
    def native_policies(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Policies in the form that `SyncUnit` takes, by model and table.

        Raises:
            ConfigError: A rule is not valid, a model is unknown, or a rule needs `event_time`.
            TypeError: A rule has an unknown field.
        """
        unknown = sorted(set(self.policies) - set(self.routes["models"]))
        if unknown:
            raise ConfigError(
                f"The models under policies must be models of `routes`. Received: {unknown}"
            )
        return {
            model: {table: self._policy(rules) for table, rules in tables.items()}
            for model, tables in self.policies.items()
        }

    def _policy(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(rules) - {"admission", "eviction"})
        if unknown or not rules:
            raise ConfigError(
                f"A policy must have admission, eviction, or both. Received: {dict(rules)}"
            )
        admission = Admission(**rules["admission"]) if "admission" in rules else None
        eviction = _eviction(rules["eviction"]) if "eviction" in rules else None
        by_time = eviction is not None and eviction.unseen_time is not None
        if by_time and self.event_time is None:
            raise ConfigError(
                "unseen_time needs `event_time: COLUMN`, the column with the event times of rows. "
                f"Received: {rules}, and no event_time"
            )
        return native_policy(admission, eviction)

    def queue_address(self, name: str) -> str:
        """Returns the address of a queue, which `open_queue` opens. Does not check that it is one.

        Args:
            name: Name of the queue, or of a partition of a topic. Without an entry in `queues` it
                is a folder below `folder`.
        """
        return StreamQueues(self.queues, self.folder).address(name)

    def sync_unit(self) -> SyncUnit:
        """Opens the sync unit, which holds the target models, in this process.

        The caller closes it.

        Returns:
            The sync unit, recovered from the files in `folder`.

        Raises:
            ConfigError: A policy or a rule of publications is not valid.
            NameTakenError: Another process runs the sync unit on the same folder.
            CorruptFileError: A file of a target model is damaged.
            OutOfSpaceError: Shared memory is full.
            OSError: A folder cannot be read or written.
        """
        names = self.queue_routes.models
        return SyncUnit(
            names,
            StreamFiles(self.folder).models,
            Path(self.memory),
            fsync=self.fsync,
            save_seconds=self.save_seconds,
            policies=self.native_policies,
            publish=self.publish_rules,
        )

    def remote_model(self, name: str, caller: str) -> TargetModel:
        """Returns a client by which this process calls a target model of the sync unit's process.

        Args:
            name: Name of the target model, the weights that trainers update together.
            caller: Name of this process, for the sync unit's logs and errors.

        Returns:
            A client with the remote methods of the model, which any thread may call. It connects at
            the first call, which also refuses an unknown name.

        Raises:
            ConfigError: The token file cannot be read or is empty, or `sync` is no `host:port`.
        """
        return client(TargetModel, self._sync_unit(caller), on=name)

    def remote_unit(self, caller: str) -> SyncUnit:
        """Returns a client by which this process calls the sync unit's process.

        Args:
            caller: Name of this process, for the sync unit's logs and errors.

        Returns:
            A client with the remote methods of the unit, which any thread may call. It connects at
            the first call.

        Raises:
            ConfigError: The token file cannot be read or is empty, or `sync` is no `host:port`.
        """
        return client(SyncUnit, self._sync_unit(caller))

    def remote_provider(self, caller: str) -> Provider:
        """Returns a client by which this process calls the provider's process.

        Args:
            caller: Name of this process, for the provider's logs and errors.

        Returns:
            A client with the remote methods of the provider, which any thread may call. It connects
            at the first call.

        Raises:
            ConfigError: The token file cannot be read or is empty, or `provider` is no `host:port`.
        """
        return client(Provider, Remote(self.provider, self.token, caller, "provider"))

    def _sync_unit(self, caller: str) -> Remote:
        return Remote(self.sync, self.token, caller, "sync unit")

    def open_provider(self) -> Provider:
        """Opens the provider in this process, which ends the leases of earlier ones.

        The caller closes it.

        Raises:
            StreamError: A queue cannot be opened, the sync unit does not answer within 120 s, or a
                topic of others does not exist or was made again (`PositionLostError`).
            ConfigError: A setting is not valid, the token file cannot be read, or a topic of others
                has another format.
            NameTakenError: Another process writes a queue.
            CorruptFileError: A queue is damaged.
            UnsupportedError: A queue is in Kafka, and confluent-kafka is not installed.
            OutOfSpaceError: The sync unit cannot write its journal.
            OSError: A file of a queue, or one of the provider in the folder, cannot be opened.
        """
        routes = self.queue_routes
        files = StreamFiles(self.folder)
        letters = DeadLetters(files.bad_rows, limit=self.bad_rows)
        aside = SetAside(files.set_aside, DeathFile(files.deaths), self.max_deaths)
        weights = {name: self.remote_model(name, "provider") for name in routes.models}
        bounds = {name: StalenessBound(self.staleness) for name in routes.models}
        rules = LeaseRules(bounds, self.expires_seconds, aside, self.max_behind)
        declared = StreamQueues(self.queues, self.folder)

        def serve(
            name: str,
            declared_as: str,
            writer: NumberedWriter | ForeignWriters,
            beside: ServedQueue | None = None,
        ) -> ServedQueue:
            return ServedQueue(
                name,
                writer,
                QueueReader(writer.queue, self.row_columns, letters, on_lost=self.on_lost),
                {model: weights[model] for model, of in routes.models.items() if declared_as in of},
                rules,
                beside,
            )

        queues = {}
        for name in dict.fromkeys(routes.queues.values()):
            queue = declared.open(name, write=True, fsync=self.fsync)
            queues[name] = serve(name, name, NumberedWriter(queue, files.producers(name)))
        topics = {name: place.topic() for name, place in declared.others.items()}
        return Provider(
            ServedQueues(queues, topics, serve, TopicIds(files.topics)),
            self.row_columns,
            routes,
            letters,
            length=LeaseLength(**self.lease),
            own=self.own,
        )

    def offset_committer(self) -> OffsetCommitter:
        """Starts a thread that commits offsets to the broker; the caller closes it.

        Call `open_provider` first, which creates the topics. A broker that cannot be reached is
        logged, not raised.

        Raises:
            ConfigError: A route or the address of a queue is not valid, or the token file cannot be
                read.
            UnsupportedError: A queue is in Kafka, and confluent-kafka is not installed.
        """
        models = self.queue_routes.models
        declared = StreamQueues(self.queues, self.folder)
        return OffsetCommitter(
            {name: cast("CommitsOffsets", declared.open(name)) for name in declared.committed},
            {name: self.remote_model(name, "offsets").saved for name in models},
            self.save_seconds / 10,
        )


def _check_mappings(file: YamlFile, fields: Mapping[str, Any]) -> None:
    for section in ("columns", "queues", "own", "policies", "trainers", "publish", "rights"):
        if not isinstance(fields.get(section, {}), dict):
            raise ConfigError(
                f"{file.at(section)} must be a mapping. Received: {fields[section]!r}"
            )


def _check_routes(columns: Collection[str], schema: pa.Schema) -> None:
    """Refuses columns by which no row would find its queue."""
    routing = [
        field.name
        for field in schema
        if pa.types.is_integer(field.type)
        or pa.types.is_boolean(field.type)
        or pa.types.is_string(field.type)
        or pa.types.is_large_string(field.type)
    ]
    unknown = [name for name in columns if name not in routing]
    if unknown:
        raise ValueError(
            "The columns of routes must be columns of integers, bool or strings, such as "
            f"{routing}. Received: {unknown}"
        )


def _check_event_time(event_time: str | None, schema: pa.Schema) -> None:
    if event_time is None:
        return
    numbers = [
        field.name
        for field in schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]
    if event_time not in numbers:
        raise ValueError(
            f"event_time must be a column of numbers, one of {sorted(numbers)}. "
            f"Received: {event_time}"
        )


def _names(fields_of: type) -> list[str]:
    return [each.name for each in dataclasses.fields(fields_of)]


def _eviction(fields: dict[str, Any]) -> Eviction:
    return Eviction(**renamed_keys(fields, every="every_steps"))
