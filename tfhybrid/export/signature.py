"""Inputs of an exported model: tensors of a request, with names that TensorFlow can spell."""

from __future__ import annotations

import itertools
import keyword
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError

_log = logging.getLogger("tfhybrid.export")


class Signature:
    """Inputs of a model, by the names that requests use.

    Args:
        model: Model, built. A functional or sequential model defines its inputs itself.
        inputs: Inputs of any other model: one `tf.TensorSpec`, or a dict or a list of them, each
            with a name unless it is in a dict. Default: `None`, the model's own.

    Attributes:
        specs: Specifications of the tensors in a request, by name. A ragged or sparse input has
            several.

    Raises:
        ConfigError: The model is not built, its inputs are unknown, they lack different names, or
            a ragged input has several ragged dimensions.
    """

    def __init__(self, model: keras.Model, inputs: Any = None) -> None:
        if not model.built:
            raise ConfigError(
                f"A model must be built before it is exported: call '{model.name}' once."
            )
        if inputs is None:
            inputs = _inputs_of(model)
        self._structure = inputs
        leaves = tf.nest.flatten(inputs)
        names = _names_of(inputs, leaves)
        if None in names or len(set(names)) < len(leaves):
            raise ConfigError(f"Every input must have a different name. Received: {inputs}")
        parts = {name: _parts_of(name, leaf) for name, leaf in zip(names, leaves, strict=True)}
        spelled = request_names(names, [(name, part) for name in names for part in parts[name]])
        self._leaves = [
            (leaf, {part: spelled[name, part] for part in parts[name]})
            for name, leaf in zip(names, leaves, strict=True)
        ]
        self.specs = {
            spelled[name, part]: tf.TensorSpec(spec.shape, spec.dtype, spelled[name, part])
            for name in names
            for part, spec in parts[name].items()
        }

    def pack(self, named: Mapping[str, tf.Tensor]) -> Any:
        """Returns inputs in the structure that the model expects.

        Args:
            named: Tensors of a request, by the names of `specs`.

        Raises:
            tf.errors.InvalidArgumentError: When the op runs, a tensor has another shape than its
                specification, or the parts of a ragged or sparse input do not fit each other.
        """
        # TensorFlow does not compare the shapes of a request with those of the signature.
        named = {
            name: tf.ensure_shape(each, self.specs[name].shape) for name, each in named.items()
        }
        leaves = [
            _as_leaf(leaf, {part: named[name] for part, name in names.items()}, names)
            for leaf, names in self._leaves
        ]
        return tf.nest.pack_sequence_as(self._structure, leaves)


def request_names(
    names: Iterable[str], parts: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Returns names that TensorFlow can spell, all different.

    Each character that is not an ASCII letter, a digit or `_` becomes `_`. `arg_` is put in front
    of a name that does not begin with a letter, and of the words of Python. A name that is taken
    gets a number. Names that need no change are never taken from their inputs.

    Args:
        names: Names of inputs.
        parts: Name of an input and suffix of one of its tensors, for all tensors.

    Returns:
        The name of each tensor, by the name of its input and the suffix.

    Example:

    >>> request_names(["user-id", "for"], [("user-id", ""), ("for", "")])
    {('user-id', ''): 'user_id', ('for', ''): 'arg_for'}
    """
    taken = {name for name in names if _spelled(name) == name}
    spelled: dict[tuple[str, str], str] = {}
    for name, part in parts:
        spelling = _spelled(name) + part
        if part or spelling != name:
            spelling = _free(spelling, taken)
            taken.add(spelling)
            if spelling != _spelled(name) + part:
                _log.warning(
                    "The name '%s' belongs to another input: the input '%s' of the exported model "
                    "is called '%s'",
                    _spelled(name) + part,
                    name + part,
                    spelling,
                )
        spelled[name, part] = spelling
    return spelled


def _spelled(name: str) -> str:
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    is_plain = text[:1].isalpha() and not keyword.iskeyword(text) and text != "self"
    return text if is_plain else f"arg_{text}"


def _free(name: str, taken: set[str]) -> str:
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _names_of(inputs: Any, leaves: list[Any]) -> list[Any]:
    """Returns the name of each leaf: its key in a dict, or its own name."""
    if isinstance(inputs, Mapping) and len(inputs) == len(leaves):
        # The order in which TensorFlow flattens a dict.
        return sorted(inputs)
    return [leaf.name for leaf in leaves]


def _parts_of(name: str, leaf: Any) -> dict[str, tf.TensorSpec]:
    """Returns the dense tensors that represent an input in a request, by the suffix of the name."""
    shape = tuple(leaf.shape)
    if _is(leaf, "ragged"):
        if None in shape[2:]:
            raise ConfigError(
                "A ragged input of an exported model must have one ragged dimension, the second. "
                f"Received: {name} {shape}"
            )
        return {
            "": tf.TensorSpec((None, *shape[2:]), leaf.dtype),
            "_row_splits": tf.TensorSpec((None,), tf.int64),
        }
    if _is(leaf, "sparse"):
        return {
            "": tf.TensorSpec((None,), leaf.dtype),
            "_indices": tf.TensorSpec((None, len(shape)), tf.int64),
            "_dense_shape": tf.TensorSpec((len(shape),), tf.int64),
        }
    return {"": tf.TensorSpec((None, *shape[1:]), leaf.dtype)}


def _as_leaf(leaf: Any, parts: Mapping[str, tf.Tensor], names: Mapping[str, str]) -> Any:
    """Builds an input of the model from the tensors of a request."""
    if _is(leaf, "ragged"):
        return _ragged(parts[""], parts["_row_splits"], names)
    if _is(leaf, "sparse"):
        # A client may send the values in any order.
        return tf.sparse.reorder(
            _sparse(parts[""], parts["_indices"], parts["_dense_shape"], names)
        )
    return parts[""]


def _ragged(values: tf.Tensor, splits: tf.Tensor, names: Mapping[str, str]) -> tf.RaggedTensor:
    fits = (
        (tf.size(splits) > 0)
        & tf.reduce_all(splits[:1] == 0)
        & tf.reduce_all(splits[1:] >= splits[:-1])
        & tf.reduce_all(splits[-1:] == tf.shape(values, splits.dtype)[0])
    )
    message = (
        f"Input {names['_row_splits']}: expected numbers that begin with 0, do not descend, and "
        f"end with the number of values in {names['']}. Received:"
    )
    # It fails with INVALID_ARGUMENT and this text, which a server sends its client.
    check = tf.debugging.Assert(fits, [message, splits, tf.shape(values)[0]])
    with tf.control_dependencies([check]):
        return tf.RaggedTensor.from_row_splits(
            tf.identity(values), tf.identity(splits), validate=False
        )


def _sparse(
    values: tf.Tensor, indices: tf.Tensor, shape: tf.Tensor, names: Mapping[str, str]
) -> tf.SparseTensor:
    fits = (
        (tf.shape(indices)[0] == tf.shape(values)[0])
        & tf.reduce_all(indices >= 0)
        & tf.reduce_all(indices < shape)
        & tf.reduce_all(shape >= 0)
        & (shape[0] <= _MAX_ROWS)
    )
    message = (
        f"Input {names['_indices']}: expected an index within {names['_dense_shape']}, which has "
        f"at most {_MAX_ROWS} rows, for each value in {names['']}. Received:"
    )
    check = tf.debugging.Assert(fits, [message, indices, shape, tf.shape(values)[0]])
    with tf.control_dependencies([check]):
        return tf.SparseTensor(tf.identity(indices), tf.identity(values), tf.identity(shape))


# A request with more would end the server by its memory before anything refuses it.
_MAX_ROWS = 2**31 - 1


def _is(leaf: Any, kind: str) -> bool:
    """Returns whether an input, a Keras tensor or a specification, is of a kind.

    Args:
        leaf: Input of a model.
        kind: Kind of tensor, `"ragged"` or `"sparse"`.
    """
    specs = {"ragged": tf.RaggedTensorSpec, "sparse": tf.SparseTensorSpec}
    # A Keras 2 tensor has a specification; a Keras 3 tensor has the attributes itself.
    spec = getattr(leaf, "type_spec", leaf)
    return isinstance(spec, specs[kind]) or bool(getattr(leaf, kind, False))


def _inputs_of(model: keras.Model) -> Any:
    try:
        if isinstance(model, keras.Sequential):
            # Keras 3 gives it no `input` before another model calls it.
            (only,) = model.inputs
            return only
        return model.input
    except (AttributeError, ValueError, TypeError):
        raise ConfigError(
            f"'{model.name}' does not define its inputs, as a functional model does: pass them, "
            'such as inputs={"user": tf.TensorSpec([None, 1], tf.int64)}.'
        ) from None
