"""The settings of `tfhybrid train`: each field with its meaning and its allowed values.

docs/train.md shows them as tables, `tfhybrid train --schema` as a JSON schema for editors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0)]

# Each model's arguments beside features and tables; a test compares them with the models.
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
# Likewise for table optimizers.
OPTIMIZER_OPTIONS: dict[str, set[str]] = {
    "sgd": {"momentum", "nesterov"},
    "adagrad": {"initial_accumulator_value", "epsilon"},
    "row_adagrad": {"initial_accumulator_value", "epsilon"},
    "adam": {"beta_1", "beta_2", "epsilon", "amsgrad"},
    "adamw": {"beta_1", "beta_2", "epsilon", "amsgrad"},
    "rmsprop": {"rho", "momentum", "epsilon", "centered"},
    "ftrl": {
        *("initial_accumulator_value", "beta"),
        *("l1_regularization_strength", "l2_regularization_strength"),
        "l2_shrinkage_regularization_strength",
    },
}


class Section(BaseModel):
    """A section of the file; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """Returns the fields that the file sets, except `name` and null values."""
        values = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        return {name: value for name, value in values.items() if value is not None}


class Data(Section):
    """Files of samples; an option that the format does not have is an error."""

    train: str | list[str] = Field(description="Files or patterns to train on.")
    format: Literal["csv", "libfm", "criteo", "tfrecord", "parquet"] = Field(
        "parquet", description="The files' format."
    )
    batch_size: Count = Field(description="Samples per step, over all ranks.")
    window: Count = Field(
        1 << 20, description="Samples, over all ranks, that are shuffled together."
    )
    features: list[str] | None = Field(None, description="Columns of keys.")
    strings: list[str] | None = Field(None, description="Columns of strings, hashed to keys.")
    lists: list[str] | None = Field(None, description="Columns with any number of keys.")
    dense: list[str] | None = Field(None, description="Columns of numbers.")
    label: str | None = Field(None, description="Label column, 0 or 1.")
    positive: float | None = Field(
        None, description="The label is 1 if the column is at least this."
    )
    missing_key: int | None = Field(None, description="Key for a missing value.")
    missing_value: float | None = Field(None, description="Number for a missing value.")
    columns: list[str] | None = Field(None, description="All columns of CSV without a header.")
    delimiter: str | None = Field(None, description="Separator of columns in CSV.")
    separator: str | None = Field(None, description="Separator of a list's keys in CSV.")
    bucketize: bool | None = Field(None, description="Read Criteo's numbers as features.")


class Model(Section):
    """A model of `tfhybrid.models`."""

    name: Literal[
        "lr", "fm", "dnn", "deepfm", "wide_deep", "dcn", "dcnv2", "xdeepfm", "dlrm", "din"
    ] = Field(description="Which one.")
    hidden: list[Count] | None = Field(None, description="Units of the deep network's layers.")
    dropout: Share | None = Field(None, description="Fraction of activations dropped in training.")
    batch_norm: bool | None = Field(
        None, description="Whether the deep network uses batch normalisation."
    )
    crosses: Count | None = Field(None, description="Number of cross layers; dcn and dcnv2.")
    interactions: list[Count] | None = Field(
        None, description="Feature maps of the interaction network; xdeepfm."
    )
    bottom: list[Count] | None = Field(
        None, description="Units of the layers over dense columns; dlrm."
    )
    interaction: Literal["dot", "cat"] | None = Field(
        None, description="How embeddings are combined; dlrm."
    )
    behaviours: dict[str, str] | None = Field(
        None, description="Columns of lists, each with the feature it is compared with; din."
    )
    max_length: Count | None = Field(
        None, description="How many of a list's last keys to use; din."
    )
    attention: list[Count] | None = Field(None, description="Units of the attention; din.")

    @model_validator(mode="after")
    def _check_options(self) -> Model:
        return _check_given(self, self.name, MODEL_OPTIONS[self.name], "model")


class TableOptimizer(Section):
    """One of `tfhybrid.optimizers`."""

    name: Literal["sgd", "adagrad", "row_adagrad", "adam", "adamw", "rmsprop", "ftrl"] = Field(
        description="Which one."
    )
    learning_rate: Rate | None = Field(
        None, description="Defaults to the rate of the dense weights' optimizer."
    )
    weight_decay: NonNegative | None = Field(
        None, description="Weight decay of embeddings; defaults to 0.004 for adamw, else 0."
    )
    momentum: Share = Field(0.0, description="For sgd and rmsprop.")
    nesterov: bool = Field(False, description="Of sgd.")
    initial_accumulator_value: NonNegative = Field(
        0.1, description="For adagrad, row_adagrad and ftrl."
    )
    epsilon: Rate = Field(1e-7, description="For all but sgd and ftrl.")
    beta_1: Share = Field(0.9, description="Of adam and adamw.")
    beta_2: Share = Field(0.999, description="Of adam and adamw.")
    amsgrad: bool = Field(False, description="Of adam and adamw.")
    rho: Share = Field(0.9, description="Of rmsprop.")
    centered: bool = Field(False, description="Of rmsprop.")
    beta: NonNegative = Field(0.0, description="Of ftrl.")
    l1_regularization_strength: NonNegative = Field(0.0, description="Of ftrl.")
    l2_regularization_strength: NonNegative = Field(0.0, description="Of ftrl.")
    l2_shrinkage_regularization_strength: NonNegative = Field(0.0, description="Of ftrl.")

    @model_validator(mode="after")
    def _check_options(self) -> TableOptimizer:
        allowed = OPTIMIZER_OPTIONS[self.name] | {"learning_rate", "weight_decay"}
        return _check_given(self, self.name, allowed, "optimizer")


class Admission(Section):
    """`tfhybrid.Admission`: when a key gets a row."""

    updates: Count = Field(description="Updates in which a key must occur.")
    forget_after: Count | None = Field(
        None, description="Updates after which a waiting key is forgotten."
    )


class Eviction(Section):
    """`tfhybrid.Eviction`: which rows are removed."""

    unseen_steps: Count | None = Field(
        None, description="Removes rows of keys unseen for this many updates."
    )
    min_frequency: float | None = Field(None, description="Removes rows of less frequent keys.")
    half_life: Count | None = Field(None, description="Updates after which frequencies are halved.")
    min_norm: float | None = Field(
        None, description="Removes rows whose embedding has a smaller norm."
    )
    max_rows: Count | None = Field(None, description="Rows to keep.")
    keep: Literal["recent", "frequent"] = Field("recent", description="Which rows max_rows keeps.")
    every: Count | None = Field(None, description="Each key is examined once in this many updates.")


class Storage(Section):
    """`tfhybrid.FileTier`: rows in files on a disk."""

    path: str = Field(description="A directory on every host.")
    cache_bytes: Count = Field(256 << 20, description="Bytes of shared memory for a table's cache.")


class OwnTable(Section):
    """The settings of a feature's table that differ from the others'."""

    optimizer: TableOptimizer | None = Field(
        None, description="Defaults to the counterpart of the dense weights' optimizer."
    )
    initializer: Literal["uniform", "normal", "truncated_normal", "zeros", "ones"] = Field(
        "uniform", description="Values of keys that were never updated."
    )
    expected_rows: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Rows to reserve memory for; `tfhybrid plan --data` says how many."
    )
    admission: Admission | None = Field(None, description="When a key gets a row.")
    eviction: Eviction | None = Field(None, description="Which rows are removed.")
    placement: Literal["replicated", "sharded"] = Field(
        "replicated", description="Which hosts hold the rows."
    )
    lazy: bool = Field(True, description="Whether a step updates only the rows of its own keys.")
    storage: Storage | None = Field(None, description="Keeps rows in files; defaults to memory.")


class Table(OwnTable):
    """The settings of all tables: fields of `tfhybrid.TableConfig`."""

    dim: Annotated[int, Field(ge=1, le=65536)] = Field(16, description="Length of an embedding.")


class Optimizer(Section):
    """The optimizer of dense weights, and how ranks work together."""

    name: str = Field("adam", description="One of `keras.optimizers`.")
    learning_rate: Rate = Field(0.001, description="Learning rate.")
    weight_decay: NonNegative | None = Field(None, description="Weight decay.")
    clipnorm: Rate | None = Field(None, description="Norm to which each gradient is clipped.")
    global_clipnorm: Rate | None = Field(
        None, description="Norm to which all gradients together are clipped."
    )
    reduction: Literal["frequency", "mean", "sum"] = Field(
        "frequency", description="By what the sum of a key's gradients is divided."
    )
    exchange: Literal["leaders", "owner", "all_ranks"] = Field(
        "leaders", description="How gradients travel between hosts."
    )
    wire_dtype: Literal["float32", "bfloat16"] = Field("float32", description="As what numbers.")
    on_nonfinite: Literal["raise", "skip"] = Field(
        "raise", description="What to do if a gradient is not finite."
    )


class Evaluation(Section):
    """Metrics over the samples of all ranks after every epoch: AUC, GAUC, log loss, calibration."""

    files: str | list[str] = Field(description="Files or patterns to evaluate on.")
    batch_size: Count = Field(4096, description="Samples in each rank's batch.")
    group: str | None = Field(None, description="Feature by which samples are grouped for GAUC.")
    monitor: Literal["val_auc", "val_gauc", "val_log_loss", "val_normalized_entropy"] = Field(
        "val_auc", description="Metric that chooses the best epoch."
    )
    patience: Count | None = Field(
        None, description="Training stops after this many epochs without a better one."
    )

    @property
    def mode(self) -> str:
        """`"max"` if a larger value of the monitored metric is better, else `"min"`."""
        return "max" if self.monitor in ("val_auc", "val_gauc") else "min"

    @model_validator(mode="after")
    def _check_group(self) -> Evaluation:
        if self.monitor == "val_gauc" and self.group is None:
            raise ValueError("monitor: val_gauc needs a group")
        return self


class Checkpoints(Section):
    """`tfhybrid.callbacks.Checkpoint`; a restarted job continues from the newest checkpoint."""

    directory: str = Field(description="Folder or URL that all hosts see.")
    save_freq: Literal["epoch"] | Count = Field("epoch", description="Steps between checkpoints.")
    max_to_keep: Count | None = Field(
        3, description="Number of newest checkpoints to keep; null keeps all."
    )
    full_every: Count = Field(1, description="One in this many checkpoints has all rows.")
    best: bool = Field(True, description="Also keep the best epoch's, if there is an evaluation.")


class Export(Section):
    """`tfhybrid.export.saved_model`, at the end."""

    directory: str = Field(description="Where the versions of the model are kept.")
    best: bool = Field(True, description="Export the best epoch, if it is kept; else the last.")
    unseen: Literal["initial", "zeros"] = Field(
        "initial", description="What a key without a row reads."
    )
    min_norm: NonNegative = Field(
        0.0, description="Rows whose embedding has a smaller norm are left out."
    )


class Job(Section):
    """`tfhybrid.init`, TensorBoard and Prometheus."""

    name: str | None = Field(None, description="Name of the job; a random one by default.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="Seed of initial values and of the order of samples."
    )
    resume: Literal["memory"] | None = Field(
        None, description="A named job that died resumes from memory."
    )
    tensorboard: str | None = Field(None, description="Folder for TensorBoard.")
    metrics_port: Annotated[int, Field(ge=0, lt=65536)] | None = Field(
        None, description="Port on which rank 0 answers Prometheus."
    )


class Settings(Section):
    """The whole file."""

    data: Data = Field(description="Files of samples.")
    model: Model = Field(description="The model.")
    table: Table = Field(default_factory=Table, description="The settings of all tables.")
    tables: dict[str, OwnTable] = Field(
        default_factory=dict,
        description="Settings that differ for a feature's table, by feature name.",
    )
    optimizer: Optimizer = Field(
        default_factory=Optimizer, description="The optimizer of dense weights."
    )
    epochs: Count = Field(1, description="Number of passes over all samples.")
    evaluation: Evaluation | None = Field(None, description="Metrics after every epoch.")
    checkpoints: Checkpoints | None = Field(None, description="Where and when to save.")
    export: Export | None = Field(None, description="A SavedModel, at the end.")
    job: Job = Field(default_factory=Job, description="The job.")

    @model_validator(mode="after")
    def _check_sections(self) -> Settings:
        if self.job.resume is not None and (self.job.name is None or self.checkpoints is None):
            raise ValueError("resume: memory needs a name of the job, and checkpoints")
        return self


def _check_given(section: Any, name: str, allowed: set[str], what: str) -> Any:
    if unknown := sorted(section.given().keys() - allowed):
        raise ValueError(f"the {what} {name} takes {sorted(allowed)}, not {unknown}")
    return section
