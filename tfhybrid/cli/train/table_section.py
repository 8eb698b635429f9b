"""Settings of tables in the YAML file of `tfhybrid train`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tfhybrid._deprecated import renamed_keys
from tfhybrid.cli.train.settings_section import (
    Count,
    Fraction,
    NonNegative,
    Rate,
    Section,
    checked_options,
    kind_of,
)

# Each table optimizer's arguments; a test compares them with the classes.
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
# Each initializer's parameters; a test compares them with the classes.
INITIALIZER_OPTIONS: dict[str, set[str]] = {
    "uniform": {"minval", "maxval"},
    "normal": {"mean", "stddev"},
    "truncated_normal": {"mean", "stddev"},
    "variance_scaling": {"scale", "distribution"},
    "constant": {"value"},
}


class TableOptimizer(Section):
    """Optimizer of rows, from `tfhybrid.optimizers`. An option that it lacks is an error."""

    name: Literal["sgd", "adagrad", "row_adagrad", "adam", "adamw", "rmsprop", "ftrl"] = Field(
        description="Name of the optimizer."
    )
    learning_rate: Rate | None = Field(
        None, description="Learning rate; defaults to that of the dense weights' optimizer."
    )
    weight_decay: NonNegative | None = Field(
        None, description="Weight decay of embeddings; defaults to 0.004 for adamw, else 0."
    )
    momentum: Fraction = Field(0.0, description="Momentum; for sgd and rmsprop.")
    nesterov: bool = Field(False, description="Whether momentum is Nesterov's; for sgd.")
    initial_accumulator_value: NonNegative = Field(
        0.1, description="First value of accumulators; for adagrad, row_adagrad and ftrl."
    )
    epsilon: Rate = Field(
        1e-7, description="Constant for numerical stability; for all but sgd and ftrl."
    )
    beta_1: Fraction = Field(0.9, description="Decay of the first moment; for adam and adamw.")
    beta_2: Fraction = Field(0.999, description="Decay of the second moment; for adam and adamw.")
    amsgrad: bool = Field(False, description="Whether to use AMSGrad; for adam and adamw.")
    rho: Fraction = Field(0.9, description="Decay of squared gradients; for rmsprop.")
    centered: bool = Field(False, description="Whether to subtract the mean; for rmsprop.")
    beta: NonNegative = Field(0.0, description="Beta of the paper; for ftrl.")
    l1_regularization_strength: NonNegative = Field(0.0, description="L1 penalty; for ftrl.")
    l2_regularization_strength: NonNegative = Field(0.0, description="L2 penalty; for ftrl.")
    l2_shrinkage_regularization_strength: NonNegative = Field(
        0.0, description="L2 shrinkage, a penalty on magnitudes; for ftrl."
    )

    @model_validator(mode="after")
    def _check_options(self) -> TableOptimizer:
        allowed = OPTIMIZER_OPTIONS[self.name] | {"learning_rate", "weight_decay"}
        return checked_options(self, self.name, allowed, "optimizer")


class AdmissionSettings(Section):
    """Settings of `tfhybrid.Admission`, the rule by which a key gets a row."""

    updates: Count = Field(description="Number of updates in which a key must occur to get a row.")
    forget_after: Count | None = Field(
        None, description="Number of updates after which a waiting key is forgotten."
    )


class EvictionSettings(Section):
    """Settings of `tfhybrid.Eviction`, the rules by which rows are removed."""

    unseen_steps: Count | None = Field(
        None, description="Number of updates without the key after which its row is removed."
    )
    min_frequency: float | None = Field(
        None, description="Frequency below which a key's row is removed."
    )
    half_life: Count | None = Field(
        None, description="Number of updates after which frequencies are halved."
    )
    min_norm: float | None = Field(
        None, description="Norm of an embedding below which its row is removed."
    )
    max_rows: Count | None = Field(None, description="Maximum number of rows.")
    keep: Literal["recent", "frequent"] = Field(
        "recent", description="Rows that max_rows keeps: recently updated or frequent ones."
    )
    every_steps: Count | None = Field(
        None, description="Number of updates in which each row is examined once."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_new_names(cls, fields: Any) -> Any:
        return renamed_keys(fields, every="every_steps")


class Storage(Section):
    """Settings of `tfhybrid.FileTier`, which keeps rows in files on a disk."""

    path: str = Field(description="Directory for the files, on every host.")
    cache_bytes: Count = Field(
        256 << 20, description="Size of a table's cache in shared memory, in bytes."
    )


class InitializerSettings(Section):
    """Initializer of rows with parameters, from `tfhybrid.initializers`, in place of its name."""

    name: Literal["uniform", "normal", "truncated_normal", "variance_scaling", "constant"] = Field(
        description="Name of the initializer."
    )
    minval: float = Field(-0.05, description="Lower end; for uniform.")
    maxval: float = Field(0.05, description="Upper end; for uniform.")
    mean: float = Field(0.0, description="Mean; for normal and truncated_normal.")
    stddev: NonNegative = Field(
        0.05, description="Standard deviation; for normal and truncated_normal."
    )
    scale: Rate = Field(
        1.0, description="Variance times the length of an embedding; for variance_scaling."
    )
    distribution: Literal["truncated_normal", "untruncated_normal", "uniform"] = Field(
        "truncated_normal", description="Kind of distribution; for variance_scaling."
    )
    value: float = Field(0.0, description="Every value; for constant.")

    @model_validator(mode="after")
    def _check_options(self) -> InitializerSettings:
        return checked_options(self, self.name, INITIALIZER_OPTIONS[self.name], "initializer")


_INITIALIZER = (
    Annotated[Literal["uniform", "normal", "truncated_normal", "zeros", "ones"], Tag("name")]
    | Annotated[InitializerSettings, Tag("section")]
)


class OwnTable(Section):
    """Settings of one feature's table that differ from those of all tables."""

    optimizer: TableOptimizer | None = Field(
        None,
        description="Optimizer of the rows; defaults to the counterpart of the dense weights' one.",
    )
    initializer: Annotated[_INITIALIZER, Discriminator(kind_of)] = Field(
        "uniform",
        description="Distribution of the initial values of a row, by name or with parameters.",
    )
    expected_rows: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Number of rows to reserve memory for; `tfhybrid plan --data` counts them.",
    )
    admission: AdmissionSettings | None = Field(None, description="Rule by which a key gets a row.")
    eviction: EvictionSettings | None = Field(None, description="Rules by which rows are removed.")
    placement: Literal["replicated", "sharded"] = Field(
        "replicated", description="Whether every host has all rows, or each row is on one host."
    )
    lazy: bool = Field(True, description="Whether a step updates only the rows of its own keys.")
    storage: Storage | None = Field(
        None, description="Files for the rows; by default they are in memory."
    )
    gather_on: Literal["host", "device"] = Field(
        "host", description="Place where rows become embeddings; see `TableConfig`."
    )
    unseen: Literal["initial", "zeros"] | None = Field(
        None,
        description="Values of a key without a row outside of training; see `TableConfig`.",
    )
    combiner: Literal["sum", "mean", "sqrtn"] = Field(
        "mean", description="Combination of the embeddings of a list's keys; for lists."
    )
    max_length: Count | None = Field(
        None, description="Maximum number of keys per list; by default all; for lists."
    )
    keep: Literal["first", "last"] = Field(
        "first", description="Keys of a list that max_length keeps; for lists."
    )


class TableSettings(OwnTable):
    """Settings of all tables: fields of `tfhybrid.TableConfig`."""

    dim: Annotated[int, Field(ge=1, le=65536)] = Field(16, description="Length of an embedding.")
