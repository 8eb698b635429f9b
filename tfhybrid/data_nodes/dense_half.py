"""Encoding of the dense half of a batch, which a data node sends to a trainer.

    key handles     index << owner_bits | owner - first_owner; the trainer knows ticket and owners
    row splits      the lengths of the rows
    dense shapes,   unchanged
    indices

Each of these tensors is sent in the smallest of uint8, uint16, uint32 and uint64 that holds all its
numbers. Values that the model does not look up keep their type: dense features, labels, weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfhybrid.core.split_batches import INDEX_BITS, OWNER_BITS, key_handle_of
from tfhybrid.data_nodes.elements import (
    DENSE,
    RAGGED,
    SPARSE,
    Leaf,
)
from tfhybrid.errors import ConfigError

Owners = tuple[int, int]  # number of the first host that owns rows, and number of all hosts


def to_arrays(
    leaves: Sequence[Leaf], with_handles: Collection[int], owners: Owners
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Encodes the leaves of a batch.

    Args:
        leaves: Leaves of the batch.
        with_handles: Numbers of the leaves that contain key handles.
        owners: Hosts that the key handles name.

    Returns:
        The kind of each leaf, and all arrays by their names in the message.

    Raises:
        ConfigError: The row splits of a ragged tensor are invalid, or a sparse tensor has negative
            indices.
    """
    arrays: dict[str, np.ndarray] = {}
    for number, leaf in enumerate(leaves):
        values = shortened(leaf.values, owners) if number in with_handles else leaf.values
        for part, array in enumerate([values, *_parts(leaf)]):
            arrays[f"{number}.{part}"] = array
    return [leaf.kind for leaf in leaves], arrays


def from_arrays(
    kinds: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    with_handles: Collection[int],
    ticket: int,
    owners: Owners,
) -> list[Leaf]:
    """Decodes the leaves that `to_arrays` encoded.

    Args:
        kinds: Kind of each leaf.
        arrays: Arrays of all leaves, by their names in the message.
        with_handles: Numbers of the leaves that contain key handles.
        ticket: Ticket of the batch, which key handles contain.
        owners: Hosts that the key handles name.

    Returns:
        The leaves, in order, with whole key handles.

    Raises:
        ValueError: The arrays are not an encoding of such leaves.
    """
    of_leaves: list[list[np.ndarray]] = []
    for number in range(len(kinds)):
        parts: list[np.ndarray] = []
        while f"{number}.{len(parts)}" in arrays:
            parts.append(arrays[f"{number}.{len(parts)}"])
        of_leaves.append(parts)
    if sum(map(len, of_leaves)) != len(arrays) or not set(with_handles) <= set(range(len(kinds))):
        raise ValueError(
            f"A batch must have the arrays of {len(kinds)} tensors of which {sorted(with_handles)} "
            f"have key handles. Received: {sorted(arrays)}"
        )
    leaves = [_leaf(kind, parts) for kind, parts in zip(kinds, of_leaves, strict=True)]
    for number in with_handles:
        values = lengthened(leaves[number].values, ticket, owners)
        leaves[number] = Leaf(leaves[number].kind, values, leaves[number].parts)
    return leaves


def shortened(handles: np.ndarray, owners: Owners) -> np.ndarray:
    """Returns key handles without the parts that the trainer knows: an unsigned array.

    Args:
        handles: Key handles, int64 of any shape.
        owners: Hosts that the key handles name.
    """
    short = handles & ((1 << INDEX_BITS) - 1)
    bits = _owner_bits(owners)
    if bits:
        owner = (handles >> INDEX_BITS & ((1 << OWNER_BITS) - 1)) - owners[0]
        short = short << bits | owner
    return _smallest(short)


def lengthened(short: np.ndarray, ticket: int, owners: Owners) -> np.ndarray:
    """Returns the key handles, int64, that `shortened` took.

    Args:
        short: Result of `shortened`.
        ticket: Ticket of the batch.
        owners: Hosts that the key handles name.

    Raises:
        ValueError: `short` is not a result of `shortened` for these owners.
    """
    _check_type("Key handles", short)
    bits, count = _owner_bits(owners), owners[1] - owners[0]
    most = int(short.max(initial=0))
    if most >> bits >= 1 << INDEX_BITS:
        raise ValueError(
            f"A key handle has an index of {INDEX_BITS} bits beside its owner's {bits}. "
            f"Received: {most}"
        )
    whole: np.ndarray = short.astype(np.int64)
    owner = whole & ((1 << bits) - 1)
    if owner.max(initial=0) >= count:
        raise ValueError(f"A key handle must name one of {count} owners. Received: {owner.max()}")
    return (whole >> bits) + (owner << INDEX_BITS) + key_handle_of(ticket, owners[0], 0)


def _owner_bits(owners: Owners) -> int:
    return (owners[1] - owners[0] - 1).bit_length()


def _smallest(whole: np.ndarray) -> np.ndarray:
    """Returns the same non-negative numbers in the smallest unsigned type that holds them."""
    return whole.astype(np.min_scalar_type(int(whole.max(initial=0))))


def _check_type(what: str, array: np.ndarray) -> None:
    if array.dtype.kind != "u":
        raise ValueError(f"{what} must be sent as unsigned numbers. Received: {array.dtype}")


def _parts(leaf: Leaf) -> list[np.ndarray]:
    """Returns the arrays of a leaf that are sent after its values."""
    if leaf.kind == RAGGED:
        rows = [len(splits) - 1 for splits in leaf.parts[1:]] + [len(leaf.values)]
        return [_lengths(*each) for each in zip(leaf.parts, rows, strict=True)]
    for array in leaf.parts:
        if array.min(initial=0) < 0:
            raise ConfigError(
                "Indices and shape of a sparse tensor must not be negative. "
                f"Received: {array.min()}"
            )
    return [_smallest(array) for array in leaf.parts]


def _lengths(splits: np.ndarray, rows: int) -> np.ndarray:
    lengths = np.diff(splits)
    if not len(splits) or splits[0] != 0 or splits[-1] != rows or lengths.min(initial=0) < 0:
        raise ConfigError(
            f"Row splits of a ragged tensor must rise from 0 to its {rows} values. "
            f"Received: {splits}"
        )
    return _smallest(lengths)


def _leaf(kind: str, parts: Sequence[np.ndarray]) -> Leaf:
    """Returns the leaf of these arrays; key handles are not decoded yet."""
    if not parts or not {DENSE: len(parts) == 1, RAGGED: len(parts) > 1}.get(
        kind, kind == SPARSE and len(parts) == 3
    ):
        raise ValueError(
            "A dense tensor has 1 array, a ragged one 2 or more, a sparse one 3. "
            f"A {kind} tensor has other parts. Received: {len(parts)}"
        )
    values, *others = parts
    if kind == RAGGED:
        return Leaf(kind, values, _splits(others, values))
    if kind == SPARSE:
        _check_sparse(values, *others)
    return Leaf(kind, values, tuple(part.astype(np.int64) for part in others))


def _splits(lengths: Sequence[np.ndarray], values: np.ndarray) -> tuple[np.ndarray, ...]:
    all_splits = []
    for row_lengths, rows in zip(lengths, [*lengths[1:], values], strict=True):
        _check_type("Lengths of rows", row_lengths)
        splits = np.zeros(row_lengths.size + 1, np.int64)
        np.cumsum(row_lengths, dtype=np.int64, out=splits[1:])
        if row_lengths.ndim != 1 or not rows.ndim or splits[-1] != len(rows):
            raise ValueError(
                f"Lengths of rows must add up to the rows of values of shape {rows.shape}. "
                f"Received: {splits[-1]} in all, of shape {row_lengths.shape}"
            )
        all_splits.append(splits)
    return tuple(all_splits)


def _check_sparse(values: np.ndarray, indices: np.ndarray, shape: np.ndarray) -> None:
    _check_type("Indices", indices)
    _check_type("Dense shapes", shape)
    if shape.ndim != 1 or values.ndim != 1 or indices.shape != (len(values), len(shape)):
        raise ValueError(
            "A sparse tensor must have one value per row of indices, and one index per dimension. "
            f"Received: shapes {values.shape}, {indices.shape}, {shape.shape}"
        )
