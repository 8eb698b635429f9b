"""Training of a built-in model on files, as a settings file describes."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid import (
    callbacks,
    checkpoint,
    distributed,
    export,
    initializers,
    layers,
    metrics,
    models,
    optimizers,
)
from tfhybrid.cli.train.described_features import described_features
from tfhybrid.cli.train.settings_file import SettingsFile
from tfhybrid.cli.train.table_section import InitializerSettings, OwnTable, TableOptimizer
from tfhybrid.cli.train.train_settings import CalibrationSettings, Evaluation, Export, Settings
from tfhybrid.config import TableConfig
from tfhybrid.config.file_tier import FileTier
from tfhybrid.config.placement import Replicated, Sharded
from tfhybrid.config.row_policy import Admission, Eviction
from tfhybrid.data import FileBatches, Position
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.features import Features
from tfhybrid.job import init

_OPTIMIZERS = {
    **{"sgd": optimizers.SGD, "adagrad": optimizers.Adagrad, "adam": optimizers.Adam},
    **{"row_adagrad": optimizers.RowAdagrad, "adamw": optimizers.AdamW},
    **{"rmsprop": optimizers.RMSprop, "ftrl": optimizers.Ftrl},
}
_INITIALIZERS = {
    **{"uniform": initializers.Uniform, "normal": initializers.Normal},
    **{"truncated_normal": initializers.TruncatedNormal, "constant": initializers.Constant},
}
_OF_LISTS = {"combiner", "max_length", "keep"}


class Training:
    """A training job, built from a settings file. Every rank creates one and calls `run`.

    Args:
        file: The settings file.
        trial: Whether the job will only be tried: it then has a name of its own, does not resume
            from memory, serves no metrics and does not shuffle. Default: no.

    Raises:
        ConfigError: A setting does not fit the data, the model or the ranks, or a folder cannot be
            written. The message names its line.
        DataError: Files are missing or damaged.
        TfhybridError: The job cannot start; see `tfhybrid.init`.
    """

    def __init__(self, file: SettingsFile, *, trial: bool = False) -> None:
        self._file = file
        self._settings: Settings = file.settings
        self._trial = trial
        self._check_folders()
        job = self._settings.job
        with self._named("job"):
            if trial:
                init(job.name and f"{job.name}-check", seed=job.seed)
                self._check_metrics_host()
            else:
                init(job.name, seed=job.seed, resume=job.resume)
                metrics.serve(job.metrics_port, address=job.metrics_host)
        keras.utils.set_random_seed(job.seed)
        self.batches = self._batches(shuffle=not trial)
        self._spec: dict[str, Any] = self.batches.dataset().element_spec[0]  # by column
        self.evaluated = self._files_of("evaluation", self._settings.evaluation)
        self.held_out = self._files_of("calibration", self._settings.calibration)
        self._features = self._described_features()
        body = self._model()
        described = self._features
        self.model = self._compiled(described.in_front_of(body, hashed=True) if described else body)
        self._served = described.in_front_of(body) if described else body

    def run(self) -> dict[str, Any]:
        """Trains, evaluates and exports; every rank must call it.

        Returns:
            `step`, the final number of steps; `scores`, the metrics by name, if there is an
            evaluation; `exported`, the folder, if there is an export.

        Raises:
            TfhybridError: A file or a checkpoint cannot be read or written.
            OSError: The directory of checkpoints cannot be read.
            SystemExit: A rank received SIGTERM or SIGINT, and the job saves checkpoints.
        """
        settings = self._settings
        saved = settings.checkpoints
        options: dict[str, Any] = {
            "verbose": 2 if distributed.rank() == 0 else 0,
            "callbacks": self._callbacks(),
        }
        position: Any = Position(0, 0)
        if saved is not None:
            position = checkpoint.restore(self.model, saved.directory)
            position = checkpoint.finish_epoch(self.model, self.batches, position, **options)
        if position.epoch < settings.epochs:
            self.model.fit(
                self.batches.dataset(position.epoch, epochs=None),
                initial_epoch=position.epoch,
                epochs=settings.epochs,
                steps_per_epoch=self.batches.steps_per_epoch,
                shuffle=False,
                **options,
            )
        if self._keeps_best and settings.export is not None and settings.export.best:
            checkpoint.restore_best(self.model, saved.directory)  # type: ignore[union-attr]
        result: dict[str, Any] = {"step": int(self.model.optimizer.iterations)}
        if settings.evaluation is not None and self.evaluated is not None:
            group = settings.evaluation.group
            result["scores"] = metrics.evaluate(self.model, self.evaluated, group=group)
        if settings.export is not None:
            result["exported"] = str(self._export(settings.export, settings.export.directory))
        return result

    def try_out(self) -> None:
        """Trains, evaluates and exports one batch, and restores the checkpoint that `run` would.

        Nothing is kept: the export goes to a temporary folder. Every rank must call it.

        Raises:
            TfhybridError: `run` would fail, as far as one batch and the newest checkpoint can tell.
            OSError: The directory of checkpoints cannot be read.
        """
        settings = self._settings
        self._callbacks()  # checks their settings
        self.model.fit(
            self.batches.dataset(0, epochs=None),
            steps_per_epoch=1,
            shuffle=False,
            verbose=0,
            callbacks=[callbacks.BroadcastVariables(), callbacks.MetricAverage()],
        )
        if settings.evaluation is not None and self.evaluated is not None:
            group = settings.evaluation.group
            with warnings.catch_warnings():
                # A batch may have labels of one class only.
                warnings.simplefilter("ignore", RuntimeWarning)
                metrics.evaluate(self.model, self.evaluated, steps=1, group=group)
        if settings.export is not None:
            with tempfile.TemporaryDirectory(prefix="tfhybrid-check-") as folder:
                self._export(settings.export, folder)
        if settings.checkpoints is not None:
            position: Any = checkpoint.restore(self.model, settings.checkpoints.directory)
            if not position.starts_epoch:
                # The order of samples is a part of a position, and a trial does not shuffle.
                distributed.together(lambda: self._batches(shuffle=True).at(position))

    @property
    def _keeps_best(self) -> bool:
        saved = self._settings.checkpoints
        return saved is not None and saved.best and self._settings.evaluation is not None

    def _export(self, settings: Export, folder: str) -> Any:
        options = settings.model_dump(include={"unseen", "min_norm"})
        return export.saved_model(self._calibrated(), folder, **options)

    def _calibrated(self) -> keras.Model:
        """Returns the model to export; every rank must call it."""
        settings = self._settings.calibration
        if settings is None:
            return self._served
        rate = settings.negative_rate
        with self._named("calibration"):
            if settings.method is None or self.held_out is None:
                layer = layers.Calibration(negative_rate=rate)
            else:
                samples = _first_of_both_classes(self.held_out) if self._trial else self.held_out
                layer = layers.Calibration.fitted(
                    self.model, samples, settings.method, negative_rate=rate
                )
        served = self._served
        return keras.Model(served.input, layer(served.output), name=served.name)

    def _batches(self, *, shuffle: bool) -> FileBatches:
        data = self._settings.data
        ranks = distributed.size()
        if data.batch_size % ranks:
            raise ConfigError(
                f"{self._file.at('data', 'batch_size')}: must be a multiple of the "
                f"number of ranks, {ranks}. Received: {data.batch_size}"
            )
        samples = self._file.sample_format()
        trial_file = self._trial and data.bad_rows_file is not None
        with self._named("data"):
            return FileBatches(
                samples,
                data.train,
                data.batch_size // ranks,
                seed=self._settings.job.seed,
                window=data.window,
                shuffle=shuffle,
                bad_rows=data.bad_rows,
                max_bad_rows=data.max_bad_rows,
                bad_rows_file=os.devnull if trial_file else data.bad_rows_file,
            )

    def _files_of(
        self, name: str, section: Evaluation | CalibrationSettings | None
    ) -> tf.data.Dataset | None:
        """Returns the samples of a section that names files, without shuffling."""
        if section is None or section.files is None:
            return None
        samples = self._file.sample_format()
        with self._named(name):
            batches = FileBatches(samples, section.files, section.batch_size, seed=0, shuffle=False)
            return batches.dataset()

    def _model(self) -> keras.Model:
        settings = self._settings
        keys, dense = self._columns()
        options = settings.model.given()
        name = settings.model.name
        sequences = options.get("behaviours", {}).keys()
        lists = {column for column, length in keys.items() if length != 1}
        if sequences - lists:
            raise ConfigError(
                f"{self._file.at('model', 'behaviours')}: must be columns of lists, of which the "
                f"data have {sorted(lists)}. Received: {sorted(sequences)}"
            )
        features = [column for column in keys if column not in sequences]
        if unknown := sorted(settings.tables.keys() - set(features)):
            raise ConfigError(
                f"{self._file.at('tables', unknown[0])}: must be one of the features {features}. "
                f"Received: {unknown[0]!r}"
            )
        group = settings.evaluation and settings.evaluation.group
        groups = [
            n for n, spec in self._spec.items() if spec.dtype.is_integer and spec.shape[1] == 1
        ]
        if group and group not in groups:
            raise ConfigError(
                f"{self._file.at('evaluation', 'group')}: must be one of the features {groups}. "
                f"Received: {group!r}"
            )
        self._refuse_list_settings(lists & set(features))
        tables = {feature: self._table(feature, feature in lists) for feature in features}
        with self._named("model"):
            model: keras.Model = getattr(models, name)(
                features, table=tables, dense=dense, **options
            )
        return model

    def _compiled(self, model: keras.Model) -> keras.Model:
        model.compile(
            optimizer=self._optimizer(), loss=keras.losses.BinaryCrossentropy(from_logits=True)
        )
        return model

    def _described_features(self) -> Features | None:
        """Returns the features of the file; `None` if they are the columns."""
        specs = self._settings.features
        if specs is None:
            return None
        with self._named("features"):
            features = described_features(specs, self._settings.data, self._spec)
            read = {column.name for each in features.columns.values() for column in each}
            if others := sorted(self._spec.keys() - read):
                raise ConfigError(
                    f"Features must read all columns of the data. Received: none of {others}"
                )
        return features

    def _columns(self) -> tuple[dict[str, int | None], dict[str, int]]:
        """Returns the lengths of the features of keys, and the widths of dense features."""
        columns = self._spec
        if (described := self._features) is not None:
            columns = tf.function(described).get_concrete_function(columns).structured_outputs
        lengths = {name: spec.shape[1] for name, spec in columns.items()}
        dense = {n: length for n, length in lengths.items() if columns[n].dtype.is_floating}
        if bags := sorted(name for name, length in dense.items() if length is None):
            raise ConfigError(
                f"{self._file.at('features', bags[0])}: numbers have one length in all rows. For "
                "lists of any length, end with buckets, which makes keys of numbers. "
                f"Received: {bags} of any length"
            )
        return {n: length for n, length in lengths.items() if n not in dense}, dense

    def _refuse_list_settings(self, lists: set[str]) -> None:
        """Refuses settings of lists in tables of features that are none."""
        settings = self._settings
        tables: list[tuple[tuple[str, ...], OwnTable]] = [
            (("tables", name), own) for name, own in settings.tables.items() if name not in lists
        ]
        if not lists:
            tables.append((("table",), settings.table))
        for path, table in tables:
            for field in sorted(_OF_LISTS & table.model_fields_set):
                raise ConfigError(
                    f"{self._file.at(*path, field)}: is for lists that are features, which are "
                    f"{sorted(lists)}. Received: {getattr(table, field)!r}"
                )

    def _table(self, feature: str, is_list: bool) -> TableConfig:
        """Returns the settings of all tables, with the differences for a feature's table."""
        common, own = self._settings.table, self._settings.tables.get(feature, OwnTable())
        path = ("tables", feature) if own.model_fields_set else ("table",)
        fields = common.given() | own.given()
        makers: dict[str, Callable[[Any], Any]] = {
            "optimizer": _table_optimizer,
            "initializer": lambda each: _initializer(each, common.dim),
            "admission": lambda each: Admission(**each.given()),
            "eviction": lambda each: Eviction(**each.given()),
            "storage": lambda each: FileTier(**each.given()),
            "placement": {"replicated": Replicated(), "sharded": Sharded()}.get,
        }
        of_lists = {name: fields.pop(name, getattr(common, name)) for name in _OF_LISTS}
        if is_list:
            fields |= of_lists
        with self._named(*path):
            arguments = {
                name: makers[name](value) if name in makers and value is not None else value
                for name, value in fields.items()
            }
            return TableConfig(**{"dim": common.dim} | arguments)

    def _check_metrics_host(self) -> None:
        """Refuses an address that is none of this host, at a port that is free."""
        job = self._settings.job
        if job.metrics_port is None or job.metrics_host is None:
            return
        if (endpoint := metrics.serve(0, address=job.metrics_host)) is not None:
            endpoint.close()

    def _check_folders(self) -> None:
        """Refuses folders that cannot be written, before hours of training."""
        settings = self._settings
        bad_rows = settings.data.bad_rows_file
        folders = {
            ("checkpoints", "directory"): settings.checkpoints and settings.checkpoints.directory,
            ("export", "directory"): settings.export and settings.export.directory,
            ("job", "tensorboard"): settings.job.tensorboard,
            ("data", "bad_rows_file"): bad_rows and str(Path(bad_rows).parent),
        }
        for location, folder in folders.items():
            if not folder or "://" in folder:
                continue
            path = Path(folder).absolute()
            existing = next(each for each in (path, *path.parents) if each.exists())
            if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
                raise ConfigError(
                    f"{self._file.at(*location)}: must be a folder that this user can write. "
                    f"Received: {folder!r}, because of {existing}"
                )

    def _optimizer(self) -> Any:
        settings = self._settings.optimizer
        ranks = {"reduction", "exchange", "wire_dtype", "on_nonfinite"}
        config = settings.model_dump(exclude=ranks | {"name"}, exclude_none=True)
        with self._named("optimizer"):
            try:
                # By name: from a dictionary Keras 2 would create a legacy optimizer.
                of_keras = type(keras.optimizers.get(settings.name))(**config)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{settings.name} with {config}: {error}") from error
            return optimizers.DistributedOptimizer(of_keras, **settings.model_dump(include=ranks))

    def _callbacks(self) -> list[Any]:
        settings, evaluation = self._settings, self._settings.evaluation
        chosen: list[Any] = [callbacks.BroadcastVariables(), callbacks.MetricAverage()]
        if evaluation is not None and self.evaluated is not None:
            chosen.append(callbacks.Evaluate(self.evaluated, group=evaluation.group))
        if settings.checkpoints is not None:
            options = settings.checkpoints.model_dump(exclude={"directory", "best"})
            if self._keeps_best and evaluation is not None:
                options |= {"monitor": evaluation.monitor, "mode": evaluation.mode}
            chosen.append(callbacks.Checkpoint(settings.checkpoints.directory, **options))
        if settings.job.tensorboard is not None:
            chosen.append(callbacks.TensorBoard(settings.job.tensorboard))
        if evaluation is not None and evaluation.patience is not None:
            chosen.append(
                keras.callbacks.EarlyStopping(
                    evaluation.monitor, mode=evaluation.mode, patience=evaluation.patience
                )
            )
        return chosen

    @contextlib.contextmanager
    def _named(self, *path: str) -> Iterator[None]:
        """Puts a section's file, line and name in front of an error."""
        try:
            yield
        except (ConfigError, DataError) as error:
            kind = ConfigError if isinstance(error, ConfigError) else DataError
            raise kind(f"{self._file.at(*path)}: {error}") from error


def _first_of_both_classes(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields batches until both labels have come."""
    labels: set[float] = set()
    for batch in dataset:
        yield batch
        labels |= set(batch[1].numpy().ravel().tolist())
        if len(labels) > 1:
            return


def _initializer(settings: InitializerSettings | str, dim: int) -> Any:
    if isinstance(settings, str):
        return settings
    if settings.name == "variance_scaling":
        return initializers.VarianceScaling(dim, **settings.given())
    return _INITIALIZERS[settings.name](**settings.given())


def _table_optimizer(settings: TableOptimizer) -> Any:
    return _OPTIMIZERS[settings.name](**settings.given())
