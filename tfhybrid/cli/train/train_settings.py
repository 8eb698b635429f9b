"""The settings of `tfhybrid train`: the meaning and the allowed values of each field.

docs/train.md shows them as tables. `tfhybrid train --schema` prints them as a JSON schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tfhybrid._deprecated import renamed_keys
from tfhybrid.cli.train.column_section import COLUMN_LISTS, ColumnSpecs, names_of, specs_of
from tfhybrid.cli.train.feature_section import FeatureSpec
from tfhybrid.cli.train.settings_section import (
    Count,
    Fraction,
    NonNegative,
    Rate,
    Section,
    checked_options,
)
from tfhybrid.cli.train.table_section import OwnTable, TableSettings

# Each model's arguments other than features and tables; a test compares them with the models.
_DEEP = {"hidden", "dropout", "batch_norm"}
MODEL_OPTIONS: dict[str, set[str]] = {
    "lr": set(),
    "fm": set(),
    "dnn": _DEEP,
    "deepfm": _DEEP,
    "wide_deep": _DEEP,
    "dcn": _DEEP | {"crosses"},
    "dcnv2": _DEEP | {"crosses"},
    "xdeepfm": _DEEP | {"interactions"},
    "dlrm": _DEEP | {"bottom", "interaction"},
    "din": _DEEP | {"behaviours", "max_length", "attention"},
}


class Data(Section):
    """Files of samples. An option that the format lacks is an error."""

    train: str | list[str] = Field(description="Files or patterns to train on.")
    format: Literal["csv", "libfm", "criteo", "tfrecord", "parquet"] = Field(
        "parquet", description="The files' format."
    )
    batch_size: Count = Field(description="Samples per step, over all ranks.")
    window: Count = Field(
        1 << 20, description="Samples, over all ranks, that are shuffled together."
    )
    features: ColumnSpecs | None = Field(
        None, description="Columns of keys, by name or with settings of their own."
    )
    strings: ColumnSpecs | None = Field(None, description="Columns of strings, hashed to keys.")
    lists: ColumnSpecs | None = Field(
        None, description="Columns with any number of keys; in CSV also of the columns in strings."
    )
    dense: ColumnSpecs | None = Field(None, description="Columns of numbers.")
    label: str | None = Field(None, description="Label column, 0 or 1.", validate_default=True)
    positive: float | None = Field(
        None, description="The label is 1 if the column is at least this."
    )
    missing_key: int | None = Field(None, description="Key for a missing value.")
    missing_value: float | None = Field(None, description="Number for a missing value.")
    empty: Literal["string", "missing"] | None = Field(
        None, description="Meaning of an empty field in CSV columns of strings."
    )
    bad_rows: Literal["raise", "skip"] = Field(
        "raise", description="Treatment of rows with a malformed value in the files to train on."
    )
    max_bad_rows: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Maximum number of rows that a rank skips in an epoch."
    )
    bad_rows_file: str | None = Field(
        None, description="File to which the skipped rows are written."
    )
    columns: list[str] | None = Field(None, description="All columns of CSV without a header.")
    delimiter: str | None = Field(None, description="Separator of columns in CSV.")
    separator: str | None = Field(None, description="Separator of a list's keys in CSV.")
    bucketize: bool | None = Field(None, description="Read Criteo's numbers as features.")

    @field_validator("features", "strings", "lists", "dense", "label")
    @classmethod
    def _check_roles(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses a column with two roles: a label that is a feature tells the model the answer."""
        field = info.field_name or ""
        if field == "label":
            names = [value or "label"]
        else:
            names = names_of(value)
            specs_of(value, COLUMN_LISTS[field])  # raises now if they make no sense
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"names columns twice: {repeated}")
        for role in COLUMN_LISTS:
            others = names_of(info.data.get(role)) if role != field else []
            if (field, role, info.data.get("format")) == ("lists", "strings", "csv"):
                others = []  # lists of strings
            if both := sorted(set(names) & set(others)):
                raise ValueError(f"a column has one role, and {both} are in {role} too")
        return value


class Model(Section):
    """Model to train, from `tfhybrid.models`. An option that the model lacks is an error."""

    name: Literal[
        "lr", "fm", "dnn", "deepfm", "wide_deep", "dcn", "dcnv2", "xdeepfm", "dlrm", "din"
    ] = Field(description="Name of the model.")
    hidden: list[Count] | None = Field(
        None, description="Units of the deep network's layers; for all but lr and fm."
    )
    dropout: Fraction | None = Field(
        None, description="Fraction of activations dropped in training; for all but lr and fm."
    )
    batch_norm: bool | None = Field(
        None,
        description="Whether the deep network uses batch normalization; for all but lr and fm.",
    )
    crosses: Count | None = Field(None, description="Number of cross layers; for dcn and dcnv2.")
    interactions: list[Count] | None = Field(
        None, description="Feature maps of each layer of the interaction network; for xdeepfm."
    )
    bottom: list[Count] | None = Field(
        None, description="Units of the layers over dense columns; for dlrm."
    )
    interaction: Literal["dot", "cat"] | None = Field(
        None,
        description="Interaction of embeddings, products of pairs or concatenation; for dlrm.",
    )
    behaviours: dict[str, str] | None = Field(
        None, description="Columns of lists, each with the feature it is compared with; for din."
    )
    max_length: Count | None = Field(
        None, description="Maximum number of keys per list, the last ones; for din."
    )
    attention: list[Count] | None = Field(
        None, description="Units of the attention layers; for din."
    )

    @model_validator(mode="after")
    def _check_options(self) -> Model:
        return checked_options(self, self.name, MODEL_OPTIONS[self.name], "model")


class Optimizer(Section):
    """The optimizer of dense weights, and how the ranks combine their gradients."""

    name: str = Field("adam", description="Name of an optimizer of `keras.optimizers`.")
    learning_rate: Rate = Field(0.001, description="Learning rate.")
    weight_decay: NonNegative | None = Field(None, description="Weight decay.")
    clipnorm: Rate | None = Field(None, description="Norm to which each gradient is clipped.")
    global_clipnorm: Rate | None = Field(
        None, description="Norm to which all gradients together are clipped."
    )
    reduction: Literal["frequency", "mean", "sum"] = Field(
        "frequency",
        description="Divisor of the sum of a key's gradients; see `DistributedOptimizer`.",
    )
    exchange: Literal["leaders", "owner", "all_ranks"] = Field(
        "leaders",
        description="Route of sparse gradients between hosts; see `DistributedOptimizer`.",
    )
    wire_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of gradients between hosts."
    )
    on_nonfinite: Literal["raise", "skip"] = Field(
        "raise", description="Reaction to a gradient that is not finite."
    )


class Evaluation(Section):
    """Metrics over all ranks' samples after every epoch: AUC, GAUC, log loss, calibration."""

    files: str | list[str] = Field(description="Files or patterns to evaluate on.")
    batch_size: Count = Field(4096, description="Samples in each rank's batch.")
    group: str | None = Field(None, description="Feature by which samples are grouped for GAUC.")
    monitor: Literal["val_auc", "val_gauc", "val_log_loss", "val_normalized_entropy"] = Field(
        "val_auc", description="Metric by which the best epoch is chosen."
    )
    patience: Count | None = Field(
        None, description="Number of epochs without a better one after which training stops."
    )

    @property
    def mode(self) -> str:
        """The direction of the monitored metric: `"max"` if more is better, else `"min"`."""
        return "max" if self.monitor in ("val_auc", "val_gauc") else "min"

    @model_validator(mode="after")
    def _check_group(self) -> Evaluation:
        if self.monitor == "val_gauc" and self.group is None:
            raise ValueError("monitor: val_gauc needs a group")
        return self


class Checkpoints(Section):
    """Settings of `tfhybrid.callbacks.Checkpoint`. A restarted job resumes from the newest one."""

    directory: str = Field(description="Folder or URL that all hosts see.")
    save_freq: Literal["epoch"] | Count = Field(
        "epoch", description='Number of steps between checkpoints, or `"epoch"`.'
    )
    max_to_keep: Count | None = Field(
        3, description="Number of newest checkpoints to keep; null keeps all."
    )
    full_every_saves: Count = Field(
        1, description="Number of checkpoints among which one has all rows; the others are deltas."
    )
    best: bool = Field(
        True,
        description="Whether to keep the best epoch's checkpoint too, if there is an evaluation.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_new_names(cls, fields: Any) -> Any:
        return renamed_keys(fields, full_every="full_every_saves")


class Export(Section):
    """Settings of `tfhybrid.export.saved_model`, which writes a SavedModel at the end."""

    directory: str = Field(description="Directory for the versions of the model, local or mounted.")
    best: bool = Field(
        True, description="Whether to export the best epoch, if it was kept, instead of the last."
    )
    unseen: Literal["initial", "zeros"] | None = Field(
        None, description="Values of a key without a row; by default those of its table."
    )
    min_norm: NonNegative = Field(
        0.0, description="Norm of an embedding below which its row is left out."
    )

    @field_validator("directory")
    @classmethod
    def _check_local(cls, directory: str) -> str:
        if "://" in directory:
            raise ValueError("must be a local or mounted folder, which you can copy to a bucket")
        return directory


class CalibrationSettings(Section):
    """Calibration of the exported model, by `tfhybrid.layers.Calibration`.

    Checkpoints and metrics are of the model without it.
    """

    method: Literal["isotonic", "platt"] | None = Field(
        None, description="Kind of the fit; by default none, only the rate of negatives."
    )
    files: str | list[str] | None = Field(
        None, description="Files or patterns of samples that the model was not trained on."
    )
    batch_size: Count = Field(4096, description="Samples in each rank's batch.")
    negative_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="Fraction of the negatives that is in these files, or without a method in the "
        "files to train on.",
    )

    @model_validator(mode="after")
    def _check_files(self) -> CalibrationSettings:
        if (self.method is None) != (self.files is None):
            raise ValueError("method and files need each other")
        if self.method is None and self.negative_rate == 1:
            raise ValueError("needs a method and files, or a negative_rate below 1")
        return self


class JobSettings(Section):
    """The job: arguments of `tfhybrid.init`, TensorBoard and Prometheus."""

    name: str | None = Field(None, description="Name of the job; random by default.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="Seed of initial values and of the order of samples."
    )
    resume: Literal["memory"] | None = Field(
        None, description="Source from which a named job that died resumes, besides checkpoints."
    )
    tensorboard: str | None = Field(None, description="Directory for TensorBoard.")
    metrics_port: Annotated[int, Field(ge=0, lt=65536)] | None = Field(
        None,
        description="Port on which rank 0 serves metrics for Prometheus, 0 for any free one; by "
        "default `TFHYBRID_METRICS_PORT`.",
    )
    metrics_host: str | None = Field(
        None,
        description="Address on which rank 0 serves metrics, `0.0.0.0` for other hosts too; by "
        "default `TFHYBRID_METRICS_HOST`, or this host alone.",
    )


class Settings(Section):
    """All settings of the YAML file."""

    data: Data = Field(description="Files of samples.")
    features: dict[str, FeatureSpec] | None = Field(
        None,
        description="Features of the model, by name: a column, a list of a column and layers, or a "
        "cross. By default the columns.",
        min_length=1,
    )
    model: Model = Field(description="The model.")
    table: TableSettings = Field(
        default_factory=TableSettings, description="The settings of all tables."
    )
    tables: dict[str, OwnTable] = Field(
        default_factory=dict,
        description="Settings that differ for a feature's table, by feature name.",
    )
    optimizer: Optimizer = Field(
        default_factory=Optimizer, description="The optimizer of dense weights."
    )
    epochs: Count = Field(1, description="Number of epochs.")
    evaluation: Evaluation | None = Field(None, description="Metrics after every epoch.")
    checkpoints: Checkpoints | None = Field(None, description="Directory and times of checkpoints.")
    export: Export | None = Field(None, description="Export of a SavedModel at the end.")
    calibration: CalibrationSettings | None = Field(
        None, description="Calibration of the exported model."
    )
    job: JobSettings = Field(
        default_factory=JobSettings, description="Name, seed and monitoring of the job."
    )

    @model_validator(mode="after")
    def _check_sections(self) -> Settings:
        if self.job.resume is not None and (self.job.name is None or self.checkpoints is None):
            raise ValueError("resume: memory needs a name of the job, and a checkpoints section")
        if self.calibration is not None and self.export is None:
            raise ValueError("calibration is for the exported model: add an export section")
        return self
