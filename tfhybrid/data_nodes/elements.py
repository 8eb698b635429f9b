"""Elements of a data set in a form that can be sent: a structure in JSON, and its leaves.

This module does not import TensorFlow: it recognizes ragged and sparse tensors by their attributes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.errors import ConfigError

DENSE, RAGGED, SPARSE = "dense", "ragged", "sparse"

# {"dict": {name: structure}}, {"tuple": [structure, ...]}, {"list": ...} or {"leaf": number}
Structure = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor of an element (one item of a data set, such as a batch of features and labels).

    Args:
        kind: `DENSE`, `RAGGED` or `SPARSE`.
        values: Values of the tensor; the flat values of a ragged one.
        parts: Row splits of a ragged tensor, int64, outermost first; indices and dense shape of a
            sparse one. Empty (default) for a dense one.
    """

    kind: str
    values: np.ndarray
    parts: tuple[np.ndarray, ...] = ()

    @classmethod
    def of(cls, tensor: Any) -> Leaf:
        """Returns a tensor or array as a leaf; a `Leaf` is returned unchanged.

        Args:
            tensor: TensorFlow tensor of any kind, NumPy array, number, or `Leaf`.

        Raises:
            ConfigError: The tensor contains something else than numbers and booleans.
        """
        if isinstance(tensor, cls):
            return tensor
        if hasattr(tensor, "nested_row_splits"):
            splits = tuple(np.asarray(each, np.int64) for each in tensor.nested_row_splits)
            leaf = cls(RAGGED, np.asarray(tensor.flat_values), splits)
        elif hasattr(tensor, "splits"):  # `tfhybrid.data.Ragged`
            leaf = cls(RAGGED, np.asarray(tensor.values), (np.asarray(tensor.splits, np.int64),))
        elif hasattr(tensor, "dense_shape"):
            parts = (np.asarray(tensor.indices), np.asarray(tensor.dense_shape))
            leaf = cls(SPARSE, np.asarray(tensor.values), parts)
        else:
            leaf = cls(DENSE, np.asarray(tensor))
        if leaf.values.dtype.kind not in "biuf":
            raise ConfigError(
                "Data nodes can only send numbers: turn text into keys in the data set, with "
                f"`tfhybrid.data.string_keys`. Received: {leaf.values.dtype}"
            )
        return leaf

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Returns all arrays of the tensor: the values, then the parts."""
        return (self.values, *self.parts)


def flatten(element: Any) -> tuple[Structure, list[Any]]:
    """Splits an element into its structure and its leaves.

    Args:
        element: Element of a data set: nested dicts, tuples and lists of leaves.

    Returns:
        The structure, and the leaves in the order of their numbers, unchanged.
    """
    leaves: list[Any] = []
    return _structure_of(element, leaves), leaves


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Returns the element with this structure and these leaves; the inverse of `flatten`.

    Args:
        structure: Structure from `flatten`.
        leaves: Leaves in the order of their numbers.
    """
    ((kind, content),) = structure.items()
    if kind == "leaf":
        return leaves[content]
    if kind == "dict":
        return {name: unflatten(each, leaves) for name, each in content.items()}
    items = [unflatten(each, leaves) for each in content]
    return tuple(items) if kind == "tuple" else items


def features_of(structure: Structure) -> dict[str, int]:
    """Returns the number of each feature's leaf, by the feature's name.

    The features are those of the structure's dict, or of the dict that a tuple or list begins with.

    Args:
        structure: Structure from `flatten`.

    Raises:
        ConfigError: There is no such dict.
    """
    first = structure
    while "dict" not in first:
        parts = first.get("tuple", first.get("list"))
        if not parts:
            raise ConfigError(
                "An element must be a dict of features, or a tuple that begins with one. "
                f"Received: {structure}"
            )
        first = parts[0]
    return {name: part["leaf"] for name, part in first["dict"].items() if "leaf" in part}


def _structure_of(element: Any, leaves: list[Any]) -> Structure:
    """Returns the structure of an element, and appends its leaves to `leaves`."""
    if isinstance(element, Mapping):
        return {"dict": {str(name): _structure_of(part, leaves) for name, part in element.items()}}
    if isinstance(element, tuple | list):
        kind = "tuple" if isinstance(element, tuple) else "list"
        return {kind: [_structure_of(each, leaves) for each in element]}
    leaves.append(element)
    return {"leaf": len(leaves) - 1}
