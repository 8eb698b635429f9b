"""Elements of a data set as arrays that travel: a structure in JSON, and its leaves.

TensorFlow is not needed: a ragged or sparse tensor is told by what it has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.errors import ConfigError

DENSE, RAGGED, SPARSE = "dense", "ragged", "sparse"

# {"dict": {name: structure}}, {"tuple": [structure, ...]}, {"list": ...} or {"leaf": its number}
Structure = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor of an element.

    Args:
        kind: `DENSE`, `RAGGED` or `SPARSE`.
        values: Of a ragged one the flat values.
        parts: The row splits of a ragged one, outermost first; indices and dense shape of a sparse
            one.
    """

    kind: str
    values: np.ndarray
    parts: tuple[np.ndarray, ...] = ()

    @classmethod
    def of(cls, tensor: Any) -> Leaf:
        """Returns a tensor as a leaf.

        Raises:
            ConfigError: It holds no numbers.
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
                "Data nodes send numbers: the data set turns text into keys "
                f"(`tfhybrid.data.string_keys`). Received: {leaf.values.dtype}"
            )
        return leaf

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Returns all that it consists of."""
        return (self.values, *self.parts)


def flatten(element: Any) -> tuple[Structure, list[Any]]:
    """Takes dicts, tuples and lists apart.

    Args:
        element: Nested as a data set has it.

    Returns:
        Its structure, and what it has for leaves.
    """
    leaves: list[Any] = []
    return _taken_apart(element, leaves), leaves


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Returns what `flatten` took apart, with other leaves."""
    ((kind, its),) = structure.items()
    if kind == "leaf":
        return leaves[its]
    if kind == "dict":
        return {name: unflatten(each, leaves) for name, each in its.items()}
    made = [unflatten(each, leaves) for each in its]
    return tuple(made) if kind == "tuple" else made


def features_of(structure: Structure) -> dict[str, int]:
    """Returns the number of each feature's leaf: those of a dict, or of the dict that comes first.

    Raises:
        ConfigError: There is no such dict.
    """
    first = structure
    while "dict" not in first:
        parts = first.get("tuple", first.get("list"))
        if not parts:
            raise ConfigError(
                "An element is a dict of features, or a tuple that begins with one. "
                f"Received: {structure}"
            )
        first = parts[0]
    return {name: its["leaf"] for name, its in first["dict"].items() if "leaf" in its}


def _taken_apart(element: Any, leaves: list[Any]) -> Structure:
    if isinstance(element, Mapping):
        return {"dict": {str(name): _taken_apart(its, leaves) for name, its in element.items()}}
    if isinstance(element, tuple | list):
        kind = "tuple" if isinstance(element, tuple) else "list"
        return {kind: [_taken_apart(each, leaves) for each in element]}
    leaves.append(element)
    return {"leaf": len(leaves) - 1}
