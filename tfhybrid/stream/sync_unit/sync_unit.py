"""Sync unit: the target models that a process serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfhybrid._remote import remote
from tfhybrid.errors import LeaseRefusedError, PublicationError
from tfhybrid.rpc.remote_methods import served, served_of
from tfhybrid.stream.sync_unit.publisher import Published, Publisher, PublishRules
from tfhybrid.stream.sync_unit.publisher_clock import PublisherClock
from tfhybrid.stream.sync_unit.saver import Saver
from tfhybrid.stream.sync_unit.stats import stream_stats
from tfhybrid.stream.sync_unit.target_model import TargetModel


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
        calls: Functions that answer other processes' calls of this unit's and of its models'
            remote methods, by the name of the call.

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
        self.calls = served(self) | served_of(TargetModel, str, self._model)

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

    @remote
    def publish(self, model: str, anyway: bool = False) -> dict[str, Any]:
        """Publishes the changes of a model since its last publication.

        Args:
            model: Name of the model.
            anyway: Whether to publish even if the AUC has fallen. Default: no.

        Returns:
            Counts of publications, and figures of the last one.

        Raises:
            LeaseRefusedError: The unit has no such model.
            PublicationError: The model is not published, the weights are withheld, or the files
                could not be written.
            StreamError: The sync unit cannot be reached.
        """
        name = self._model(model).name
        if name not in self.publishers:
            raise PublicationError(
                f"stream.yaml publishes the models {sorted(self.publishers)}. Received: '{name}'"
            )
        self.publishers[name].publish(anyway=anyway)
        return self.publishers[name].status()

    @remote
    def stats(self) -> dict[str, dict[str, float]]:
        """Returns the metrics of all models.

        Returns:
            Values by the name of the metric and the label, which is a model or a queue.

        Raises:
            StreamError: The sync unit cannot be reached.
        """
        return stream_stats(self.models, self.publishers)

    def _model(self, name: str) -> TargetModel:
        if name not in self.models:
            raise LeaseRefusedError(
                f"The sync unit has the models {sorted(self.models)}. Received: '{name}'"
            )
        return self.models[name]
