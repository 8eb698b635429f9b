"""The features that the YAML file of `tfhybrid train` describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tensorflow import keras

from tfhybrid.cli.train.column_section import COLUMN_LISTS
from tfhybrid.cli.train.feature_section import CrossSettings, FeatureSpec, LayerSettings
from tfhybrid.cli.train.train_settings import Data
from tfhybrid.errors import ConfigError
from tfhybrid.features import Buckets, Clip, Cross, Default, Features, Log, SplitText, Truncate
from tfhybrid.values import Column


def described_features(
    specs: Mapping[str, FeatureSpec], data: Data, element_spec: Mapping[str, Any]
) -> Features:
    """Returns the features of a settings file.

    Args:
        specs: Descriptions of the features, by name.
        data: Settings of the data, with roles of the columns.
        element_spec: Specifications of the tensors of a batch, by column.

    Raises:
        ConfigError: A feature is described wrongly; the message names it.
    """
    columns = {name: _column(name, data, tensor) for name, tensor in element_spec.items()}
    return Features({name: _feature(name, spec, columns) for name, spec in specs.items()})


def _column(name: str, data: Data, tensor: Any) -> Column:
    """Returns a column as the settings describe it, of the length that the files show."""
    role: Any = "number" if tensor.dtype.is_floating else "key"
    length = tensor.shape[1]
    for field, role_of_field in COLUMN_LISTS.items():
        for spec in getattr(data, field) or []:
            if spec == name and role_of_field == "string":
                role = "string"
            elif not isinstance(spec, str) and spec.name == name:
                return dataclasses.replace(spec.column(role_of_field), length=length)
    missing = data.missing_value if role == "number" else data.missing_key
    empty = data.empty if role == "string" and data.empty else "string"
    return Column(name, role, missing=missing, empty=empty, length=length)


def _feature(name: str, spec: FeatureSpec, columns: Mapping[str, Column]) -> Any:
    if isinstance(spec, CrossSettings):
        fields = spec.given()
        return Cross(fields.pop("cross"), **fields)
    column, *layers = [spec] if isinstance(spec, str) else spec
    if not isinstance(column, str) or column not in columns:
        raise ConfigError(
            f"Feature {name!r} must begin with a column of the data, {sorted(columns)}. "
            f"Received: {column!r}"
        )
    return [columns[column], *(_layer(name, each) for each in layers)]


def _layer(feature: str, spec: str | LayerSettings) -> Any:
    if spec == "log":
        return Log()
    if isinstance(spec, str):
        raise ConfigError(
            f"Feature {feature!r}: a layer is log, or a mapping such as clip: [0, 1]. "
            f"Received: {spec!r}"
        )
    if spec.clip is not None:
        return Clip(*spec.clip)
    if spec.normalization is not None:
        # In float32 under every policy: 16 bits would round the numbers before.
        return keras.layers.Normalization(**spec.normalization.model_dump(), dtype="float32")
    if spec.truncate is not None:
        return Truncate(spec.truncate, spec.keep or "first")
    makers = {"default": Default, "buckets": Buckets, "split": SplitText}
    ((name, value),) = spec.given().items()
    return makers[name](value)
