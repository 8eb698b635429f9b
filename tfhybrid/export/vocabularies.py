"""Lookup tables of TensorFlow inside a model, which a SavedModel must hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

# What every lookup table of TensorFlow is, also one that can change.
_Resource = tf.saved_model.experimental.TrackableResource
_SEARCHED = (_Resource, keras.layers.Layer, tf.Module, Mapping, list, tuple, set, frozenset)


def vocabularies(model: keras.Model) -> list[Any]:
    """Returns the lookup tables in a model, each once.

    Layers like `keras.layers.StringLookup` hold them. They are not variables. The tables are found
    in attributes of layers and modules, and in lists, tuples, dicts and sets there.

    Args:
        model: Model to search, with all layers inside it.
    """
    return list(_tables_in(model, set()))


def _tables_in(holder: Any, seen: set[int]) -> Iterator[Any]:
    if id(holder) in seen:
        return
    seen.add(id(holder))
    if isinstance(holder, _Resource):
        yield holder
    for inner in _inside(holder):
        yield from _tables_in(inner, seen)


def _inside(holder: Any) -> list[Any]:
    """Returns what may be, or may hold, a table in a layer, module or container."""
    inner: Iterable[Any] = ()
    if isinstance(holder, Mapping):
        inner = holder.values()
    elif isinstance(holder, list | tuple | set | frozenset):
        inner = holder
    elif isinstance(holder, keras.layers.Layer | tf.Module):
        # `layers` of a functional model of Keras 2 is not among its attributes.
        layers = holder.layers if isinstance(holder, keras.Model) else ()
        inner = [*vars(holder).values(), *layers]
    # Containers may hold a vocabulary of millions of strings.
    return [each for each in inner if isinstance(each, _SEARCHED)]
