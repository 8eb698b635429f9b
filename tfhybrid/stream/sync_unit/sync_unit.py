"""Sync unit: the target models that a process serves, and their clients in other processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from tfhybrid.errors import LeaseRefusedError, PublicationError
from tfhybrid.rpc.calls import Answer, Called
from tfhybrid.rpc.messages import Arrays
from tfhybrid.rpc.remote import Remote
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.sync_unit.publisher import Published, Publisher, PublishRules
from tfhybrid.stream.sync_unit.publisher_clock import PublisherClock
from tfhybrid.stream.sync_unit.saver import Saver
from tfhybrid.stream.sync_unit.stats import stream_stats
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights.lease import (
    Lease,
    QueueProgress,
    TargetWeights,
    lease_fields,
    lease_from,
)
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.weight_update import WeightUpdate


class SyncUnit:
    """The target models (weights to which trainers send updates) that one process serves.

    Each model has a folder, a journal of its updates and a lock of its own. The constructor
    recovers the models from their folders, and starts the threads that save and publish. One
    thread constructs and closes the unit; the rest may be used by any thread.

    Args:
        models: Names of the target models.
        folder: Folder with one subfolder per model, which no other process may use.
        memory: Directory of the models' stores, in shared memory.
        fsync: When the journals reach the disk: `"always"` (default), before an update is
            acknowledged, or `"never"`, when the kernel writes them.
        save_seconds: Time between two bases (complete copies on disk) of a model, in seconds.
            Default: `None`, never.
        policies: Admission and eviction of keys, as fields of `native.RowPolicyStruct` by model,
            table and field. Default: every key gets a row and keeps it.
        publish: Settings of publications, by model. Models without an entry are not published.

    Attributes:
        models: Target models by name.
        publishers: Publishers by the name of the model that they publish.
        calls: Functions that answer the requests of `RemoteModel`, by the name of the request.

    Raises:
        NameTakenError: Another process uses a model's folder.
        CorruptFileError: A model's newest base or journal is damaged.
        OutOfSpaceError: Shared memory is full.
        ConfigError: `fsync` has another value.
        OSError: A folder cannot be read or written.
    """

    def __init__(
        self,
        models: Iterable[str],
        folder: Path,
        memory: Path,
        *,
        fsync: str = "always",
        save_seconds: float | None = None,
        policies: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
        publish: Mapping[str, PublishRules] | None = None,
    ) -> None:
        of_models = policies or {}
        earlier = {name: Published(rules) for name, rules in (publish or {}).items()}
        self.models = {
            name: TargetModel(
                name,
                folder / name,
                memory,
                fsync=fsync,
                policies=of_models.get(name),
                published=earlier[name].weights if name in earlier else None,
            )
            for name in models
        }
        self.publishers = {
            name: Publisher(self.models[name], rules, earlier[name])
            for name, rules in (publish or {}).items()
        }
        self._clock = PublisherClock(self.publishers)
        self._saver = None if save_seconds is None else Saver(self.models, save_seconds)
        self.calls: dict[str, Called] = {
            "open": self._open,
            "begin": self._of_lease(self._begin),
            "revoke": self._of_lease(
                lambda model, a: model.revoke(a["queue"], lease_from(a["lease"]))
            ),
            "pass_over": self._of_lease(
                lambda model, a: model.skip(a["queue"], lease_from(a["lease"]))
            ),
            "apply": self._apply,
            "read": self._read,
            "save": self._of_lease(lambda model, _: str(model.save())),
            "digests": self._of_lease(lambda model, _: model.digests()),
            "standing": self._of_lease(lambda model, _: model.standing()),
            "saved": self._of_lease(lambda model, _: model.saved()),
            "publish": self._publish,
            "stats": lambda _, __: (stream_stats(self.models, self.publishers), {}),
        }

    def close(self) -> None:
        """Publishes and saves the last changes, if that is enabled, and frees memory and files.

        Waits for it. Call it once, after the server has stopped calling `calls`. Failures to
        publish or save are logged, not raised.
        """
        # In this order: the next process can only continue a chain of publications if its weights
        # are those that were published.
        self._clock.close()
        if self._saver is not None:
            self._saver.close()
        for model in self.models.values():
            model.close()

    def _model(self, arguments: Mapping[str, Any]) -> TargetModel:
        name = arguments["model"]
        if name not in self.models:
            raise LeaseRefusedError(
                f"The sync unit has the models {sorted(self.models)}. Received: '{name}'"
            )
        return self.models[name]

    def _of_lease(self, do: Callable[[TargetModel, dict[str, Any]], Any]) -> Called:
        def called(arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
            return do(self._model(arguments), arguments), {}

        return called

    def _begin(self, model: TargetModel, arguments: Mapping[str, Any]) -> Any:
        standing = model.begin(arguments["queue"], QueuePosition(*arguments["first"]))
        return dataclasses.asdict(standing)

    def _open(self, arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        states = arrays.pop("states", None)
        dense = [arrays[str(i)] for i in range(len(arrays))]
        spec, checkpoint = ModelSpec.from_json(arguments["spec"]), arguments["checkpoint"]
        self._model(arguments).open(spec, dense, tuple(checkpoint) if checkpoint else None, states)
        return None, {}

    def _apply(self, arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        # A trainer must not choose the kind of a journal's record.
        attributes = {**arguments["attributes"], "kind": "update"}
        record = Record(arrays["payload"].tobytes(), attributes)
        return self._model(arguments).apply(WeightUpdate.from_record(record), record), {}

    def _publish(self, arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        name = self._model(arguments).name
        if name not in self.publishers:
            raise PublicationError(
                f"stream.yaml publishes the models {sorted(self.publishers)}. Received: '{name}'"
            )
        self.publishers[name].publish(anyway=arguments["anyway"])
        return self.publishers[name].status(), {}

    def _read(self, arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        rows, version = self._model(arguments).read(arrays)
        return version, rows


class RemoteModel(TargetWeights):
    """Client of a target model in another process. Has the methods of `TargetModel`.

    Every method raises the errors of the `TargetModel` method, `LeaseRefusedError` if the sync unit
    has no such model, and `StreamError` if it cannot be reached for the `patience` of `remote`.
    Thread-safe, as `remote` makes one call at a time; its creator closes `remote`.

    Args:
        remote: Connection to the sync unit.
        name: Name of the model.
    """

    def __init__(self, remote: Remote, name: str) -> None:
        self._remote = remote
        self.name = name

    def open(
        self,
        spec: ModelSpec,
        dense: Sequence[np.ndarray],
        checkpoint: tuple[str, int] | None = None,
        states: np.ndarray | None = None,
    ) -> None:
        """Creates the model's weights, unless they exist: the first trainer's weights count.

        Args:
            spec: Specification of the model, without policies.
            dense: Initial dense weights, in the order of `spec.shapes`.
            checkpoint: Directory and step of a synchronous job's checkpoint, from which the sync
                unit reads the tables. Default: `None`, the tables are empty.
            states: Optimizer states of the dense weights in that job. Default: `None`, fresh ones.

        Raises:
            ConfigError: The model has another specification, or the weights, the states or the
                policies in the sync unit do not fit.
            CheckpointError: The sync unit cannot read the checkpoint.
            OutOfSpaceError: Disk or shared memory of the sync unit is full.
            StreamError: The sync unit cannot be reached.
        """
        arrays = {str(i): np.asarray(each, np.float32) for i, each in enumerate(dense)}
        if states is not None:
            arrays["states"] = states
        self._ask("open", arrays, spec=spec.to_json(), checkpoint=checkpoint)

    @override
    def begin(self, queue: str, first: QueuePosition) -> QueueProgress:
        fields, _ = self._ask("begin", queue=queue, first=first)
        ranges = [(QueuePosition(*begin), QueuePosition(*end)) for begin, end in fields["ranges"]]
        return QueueProgress(fields["epoch"], QueuePosition(*fields["frontier"]), ranges)

    @override
    def revoke(self, queue: str, lease: Lease) -> bool:
        return bool(self._ask("revoke", queue=queue, lease=lease_fields(lease))[0])

    @override
    def skip(self, queue: str, lease: Lease) -> None:
        self._ask("pass_over", queue=queue, lease=lease_fields(lease))

    def apply(self, update: WeightUpdate) -> tuple[int, bool]:
        """Applies an update, unless the weights contain its rows: calling it again is harmless.

        Args:
            update: Update from a trainer.

        Returns:
            The version of the weights, and whether the update was new.

        Raises:
            LeaseRefusedError: The update is for another model, or its lease has ended.
            ConfigError: The update lacks a table of the model or a learning rate, or has other dims
                or a value that is not finite.
            OutOfSpaceError: Memory or disk of the sync unit has no space. Nothing was changed.
            StreamError: The sync unit cannot be reached, or no trainer has opened the model yet.
        """
        record = update.to_record()
        payload = {"payload": np.frombuffer(record.payload, np.uint8)}
        (version, new), _ = self._ask("apply", payload, attributes=dict(record.attributes))
        return int(version), bool(new)

    def read(self, keys: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Returns the rows of keys by table, all at the same version, and that version.

        Args:
            keys: Keys of each table, int64 `[n]`; the rows have their order.

        Raises:
            StreamError: The sync unit cannot be reached, or no trainer has opened the model yet.
        """
        version, rows = self._ask("read", keys)
        return rows, int(version)

    def save(self) -> str:
        """Writes a base (a complete copy of the model) on the sync unit's disk.

        Returns:
            Path of the base's folder on the sync unit's host.

        Raises:
            StreamError: The sync unit cannot be reached or write, or no trainer has opened the
                model yet.
        """
        return str(self._ask("save")[0])

    def standing(self) -> dict[str, tuple[QueuePosition, int]]:
        """Returns which rows of each queue the weights contain, by queue.

        Returns:
            The frontier, before which all rows are contained, and the number of ranges after it.

        Raises:
            StreamError: The sync unit cannot be reached.
        """
        fields: dict[str, Any] = self._ask("standing")[0]
        return {
            queue: (QueuePosition(*frontier), ranges)
            for queue, (frontier, ranges) in fields.items()
        }

    def publish(self, *, anyway: bool = False) -> dict[str, Any]:
        """Publishes the changes since the last publication.

        Args:
            anyway: Whether to publish even if the AUC has fallen. Default: no.

        Returns:
            Counts of publications, and figures of the last one.

        Raises:
            PublicationError: The model is not published, the weights are withheld, or the files
                could not be written.
            StreamError: The sync unit cannot be reached.
        """
        status: dict[str, Any] = self._ask("publish", anyway=anyway)[0]
        return status

    def stats(self) -> dict[str, dict[str, float]]:
        """Returns the metrics of all models of the sync unit.

        Returns:
            Values by the name of the metric and the label, which is a model or a queue.

        Raises:
            StreamError: The sync unit cannot be reached.
        """
        values: dict[str, dict[str, float]] = self._ask("stats")[0]
        return values

    def saved(self) -> dict[str, int]:
        """Returns the offset of each queue before which the newest base (on disk) has all rows.

        Queues that no save or recovery has recorded yet are left out.

        Raises:
            StreamError: The sync unit cannot be reached.
        """
        offsets: dict[str, int] = self._ask("saved")[0]
        return offsets

    def digests(self) -> dict[str, int]:
        """Returns a hash of each table's rows and optimizer states, by table.

        Raises:
            StreamError: The sync unit cannot be reached, or no trainer has opened the model yet.
        """
        digests: dict[str, int] = self._ask("digests")[0]
        return digests

    def _ask(
        self, call: str, arrays: Arrays | None = None, **arguments: Any
    ) -> tuple[Any, dict[str, np.ndarray]]:
        return self._remote.ask(call, {"model": self.name, **arguments}, arrays)
