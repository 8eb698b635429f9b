"""Regrouping of a data set into batches of one label value each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfhybrid.data_nodes.elements import (
    DENSE,
    RAGGED,
    SPARSE,
    Leaf,
    Structure,
    flatten,
    unflatten,
)
from tfhybrid.errors import ConfigError

LABEL = "label"
GROUPS = (None, LABEL)


@dataclasses.dataclass
class _LabelGroup:
    """Samples of one label value that do not fill a batch yet."""

    samples: int = 0
    parts: list[list[Leaf]] = dataclasses.field(default_factory=list)

    def add(self, samples: int, leaves: list[Leaf]) -> None:
        self.samples += samples
        self.parts.append(leaves)

    def take(self, samples: int) -> list[Leaf]:
        """Removes and returns the first samples; the group keeps the rest."""
        leaves = [_concatenated(parts) for parts in zip(*self.parts, strict=True)]
        rest = np.arange(samples, self.samples)
        self.parts = [[_taken(leaf, rest) for leaf in leaves]] if len(rest) else []
        self.samples = len(rest)
        return [_taken(leaf, np.arange(samples)) for leaf in leaves]


def by_label(elements: Iterable[Any]) -> Iterator[Any]:
    """Yields the samples of a data set in batches of one label value each.

    Each batch has as many samples as the first batch of the data set, and is yielded once it is
    full; at the end follows one batch with the rest of each label value. Samples with the same
    label keep their order. No sample is lost, and no batch is empty.

    Args:
        elements: Batches, as tuples that begin with features and labels. All tensors have one row
            per sample.

    Yields:
        Batches with the same structure, and a `Leaf` for each tensor.

    Raises:
        ConfigError: There is not one label per sample, or tensors hold text or differ in shape.

    Example:

    ```python
    batches = [({"ad": np.array([1, 2, 3])}, np.array([0.0, 1.0, 0.0]))]
    [labels.values for _, labels in by_label(batches)]  # [0.0, 0.0] and [1.0]
    ```
    """
    groups: dict[bytes, _LabelGroup] = {}
    structure: Structure = {}
    size = 0
    for element in elements:
        structure, tensors = flatten(element)
        leaves = [Leaf.of(tensor) for tensor in tensors]
        labels = _labels(structure, leaves)
        size = size or len(labels)
        values, numbers = np.unique(labels, return_inverse=True)
        for number in range(len(values)):
            rows = np.flatnonzero(numbers == number)
            group = groups.setdefault(values[number : number + 1].tobytes(), _LabelGroup())
            group.add(len(rows), [_taken(leaf, rows) for leaf in leaves])
            while group.samples >= size:
                yield unflatten(structure, group.take(size))
    for group in groups.values():
        if group.samples:
            yield unflatten(structure, group.take(group.samples))


def _labels(structure: Structure, leaves: Sequence[Leaf]) -> np.ndarray:
    parts: Any = structure.get("tuple", structure.get("list", []))
    label = leaves[parts[1]["leaf"]] if len(parts) > 1 and "leaf" in parts[1] else None
    if label is None or label.kind != DENSE or label.values.shape[1:] not in ((), (1,)):
        raise ConfigError(
            "Batches can be grouped by label if they are tuples of features and labels, with one "
            f"label per sample. Received: {structure}"
            + ("" if label is None else f", labels of shape {label.values.shape}")
        )
    counts = {_rows(leaf) for leaf in leaves}
    if len(counts) > 1:
        raise ConfigError(
            "Batches can be grouped by label if all tensors have one row per sample. "
            f"Received: tensors of {sorted(counts)} rows"
        )
    return label.values.reshape(-1)


def _rows(leaf: Leaf) -> int:
    """Returns the number of rows of a tensor, or -1 for a scalar."""
    if leaf.kind == RAGGED:
        return len(leaf.parts[0]) - 1
    if leaf.kind == SPARSE:
        return int(leaf.parts[1][0])
    return len(leaf.values) if leaf.values.ndim else -1


def _taken(leaf: Leaf, rows: np.ndarray) -> Leaf:
    """Returns these rows of a tensor; `rows` is in ascending order."""
    if leaf.kind == SPARSE:
        indices, shape = leaf.parts
        new = np.full(int(shape[0]), -1, np.int64)
        new[rows] = np.arange(len(rows))
        kept = np.flatnonzero(new[indices[:, 0]] >= 0)
        indices = np.column_stack([new[indices[kept, 0]], indices[kept, 1:]])
        return Leaf(SPARSE, leaf.values[kept], (indices, np.array([len(rows), *shape[1:]])))
    parts = []
    for splits in leaf.parts:  # row splits of a ragged tensor, outermost first; else none
        lengths = np.diff(splits)[rows]
        parts.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        rows = np.repeat(splits[:-1][rows] - parts[-1][:-1], lengths) + np.arange(parts[-1][-1])
    return Leaf(leaf.kind, leaf.values[rows], tuple(parts))


def _concatenated(leaves: Sequence[Leaf]) -> Leaf:
    """Returns the rows of several tensors as one tensor."""
    if len(leaves) == 1:
        return leaves[0]
    try:
        values = np.concatenate([leaf.values for leaf in leaves])
    except ValueError as error:
        raise ConfigError(
            "Batches can be grouped by label if each tensor has the same shape in all batches, "
            "except for the number of rows, or is ragged. "
            f"Received: shapes {[leaf.values.shape for leaf in leaves]}"
        ) from error
    if leaves[0].kind == SPARSE:
        shapes = np.array([leaf.parts[1] for leaf in leaves])
        shape = np.array([shapes[:, 0].sum(), *shapes[:, 1:].max(axis=0)])
        indices = np.concatenate([leaf.parts[0] for leaf in leaves])
        before = np.concatenate([[0], np.cumsum(shapes[:-1, 0])])
        indices[:, 0] += np.repeat(before, [len(leaf.values) for leaf in leaves])
        return Leaf(SPARSE, values, (indices, shape))
    parts = tuple(
        _concatenated_splits(splits)
        for splits in zip(*(leaf.parts for leaf in leaves), strict=True)
    )
    return Leaf(leaves[0].kind, values, parts)


def _concatenated_splits(splits: Sequence[np.ndarray]) -> np.ndarray:
    lengths = np.concatenate([np.diff(each) for each in splits])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
