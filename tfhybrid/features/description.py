"""Descriptions of the features of a model as plain JSON, which checkpoints keep and compare."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid.features.column_layers import ColumnLayers
from tfhybrid.features.preprocessing import Features, features_of

_LONGEST = 10_000  # characters of a value; of a longer one there is a hash
_OF_ROWS = {"low", "high", "finite"}  # rules for bad rows, which change no feature
_OF_EVERY_LAYER = {"name", "trainable", "dtype"}
# Each checkpoint needs them, and a vocabulary of a million strings takes half a second.
_described: weakref.WeakKeyDictionary[Features, dict[str, Any]] = weakref.WeakKeyDictionary()


def describe(model: keras.Model) -> dict[str, Any]:
    """Returns the columns, layers and constants of each feature, ready for JSON.

    Args:
        model: Model. It has features if a layer of it, at any depth, is a `Features`.
    """
    described: dict[str, Any] = {}
    for layer in features_of(model):
        if layer not in _described:
            _described[layer] = _of_features(layer)
        described |= _described[layer]
    return described


def difference(saved: Mapping[str, Any], described: Mapping[str, Any]) -> str | None:
    """Compares two descriptions, of the features and settings that both have.

    Args:
        saved: Description that was saved, not trusted.
        described: Description of this model.

    Returns:
        The first difference, with both values; `None` if there is none.
    """
    for name in sorted(saved.keys() & described.keys()):
        column = described[name].get("column", {}).get("name")
        feature = f"feature {name!r}" + (f" of column {column!r}" if column else "")
        for setting, then, now in _differences("", saved[name], described[name]):
            return f"{setting} of {feature} was {_shown(then)}. Received: {_shown(now)}"
    return None


def _of_features(layer: Features) -> dict[str, Any]:
    described = {name: _of_column(each) for name, each in layer.of_columns.items()}
    return described | {name: _of_layers([cross]) for name, cross in layer.crosses.items()}


def _of_column(feature: ColumnLayers) -> dict[str, Any]:
    column = dataclasses.asdict(feature.column)
    settings = {name: _plain(value) for name, value in column.items() if name not in _OF_ROWS}
    return {"column": settings, **_of_layers(feature.layers)}


def _of_layers(layers: list[Any]) -> dict[str, Any]:
    """Returns the names of the layers' classes, and the arguments of each."""
    names: list[str] = []
    for number, layer in enumerate(layers, start=1):
        name = type(layer).__name__
        names.append(f"{name} ({number})" if name in names else name)
    arguments = {name: _arguments(layer) for name, layer in zip(names, layers, strict=True)}
    return {"layers": names, **arguments}


def _arguments(layer: Any) -> dict[str, Any]:
    try:
        config = layer.get_config()
    except NotImplementedError:  # a layer of the user's that cannot be written
        return {}
    return {name: _plain(each) for name, each in config.items() if name not in _OF_EVERY_LAYER}


def _plain(value: Any) -> Any:
    """Returns a value as JSON that is short and has no NaN."""
    plain = _json(value)
    text = json.dumps(plain)
    return plain if len(text) <= _LONGEST else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def _json(value: Any) -> Any:
    if isinstance(value, tf.Tensor | np.ndarray | np.generic):
        value = np.asarray(value).tolist()
    if isinstance(value, Mapping):
        return {str(name): _json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value) if isinstance(value, int | float | bytes) else type(value).__name__


def _differences(path: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the path and both values of each difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name in now:
            if name in then:
                yield from _differences(f"{path}.{name}".lstrip("."), then[name], now[name])
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, pair in enumerate(zip(then, now, strict=True)):
            yield from _differences(f"{path}[{index}]", *pair)
    elif then != now:
        yield path, then, now


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
