"""The dense half of a batch as it travels to a trainer: no number takes more bytes than it must.

    places          index << owner_bits | owner - first_owner; the trainer knows ticket and owners
    row splits      the lengths of the rows
    dense shapes,   as they are
    indices

each in the smallest of uint8, uint16, uint32 and uint64 that holds all of a tensor. What a model
does not look up keeps its type: dense features, labels, weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfhybrid.core.split_batches import INDEX_BITS, OWNER_BITS, place_of
from tfhybrid.data_nodes.elements import (
    DENSE,
    RAGGED,
    SPARSE,
    Leaf,
)
from tfhybrid.errors import ConfigError

Owners = tuple[int, int]  # the first host that owns rows, and the number of all hosts


def to_arrays(
    leaves: Sequence[Leaf], places: Collection[int], owners: Owners
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Returns the kinds of leaves, and their arrays by the names under which they travel.

    Args:
        leaves: Of the batch.
        places: Numbers of those leaves that have places.
        owners: Whom the places name.

    Raises:
        ConfigError: A ragged or sparse tensor is none.
    """
    arrays: dict[str, np.ndarray] = {}
    for number, leaf in enumerate(leaves):
        values = shortened(leaf.values, owners) if number in places else leaf.values
        for part, array in enumerate([values, *_parts(leaf)]):
            arrays[f"{number}.{part}"] = array
    return [leaf.kind for leaf in leaves], arrays


def from_arrays(
    kinds: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    places: Collection[int],
    ticket: int,
    owners: Owners,
) -> list[Leaf]:
    """Returns the leaves that `to_arrays` was given.

    Args:
        kinds: Of the leaves.
        arrays: By name.
        places: Numbers of those leaves that have places.
        ticket: Of the batch.
        owners: Whom the places name.

    Raises:
        ValueError: The arrays are nothing of the kind.
    """
    of_leaves: list[list[np.ndarray]] = []
    for number in range(len(kinds)):
        parts: list[np.ndarray] = []
        while f"{number}.{len(parts)}" in arrays:
            parts.append(arrays[f"{number}.{len(parts)}"])
        of_leaves.append(parts)
    if sum(map(len, of_leaves)) != len(arrays) or not set(places) <= set(range(len(kinds))):
        raise ValueError(
            f"{len(kinds)} tensors of which {sorted(places)} have places are wanted. "
            f"Received: {sorted(arrays)}"
        )
    leaves = [_leaf(kind, parts) for kind, parts in zip(kinds, of_leaves, strict=True)]
    for number in places:
        values = restored(leaves[number].values, ticket, owners)
        leaves[number] = Leaf(leaves[number].kind, values, leaves[number].parts)
    return leaves


def shortened(places: np.ndarray, owners: Owners) -> np.ndarray:
    """Returns what a trainer lacks of the places of a batch.

    Args:
        places: int64 of any shape.
        owners: Whom they name.
    """
    short = places & ((1 << INDEX_BITS) - 1)
    bits = _owner_bits(owners)
    if bits:
        owner = (places >> INDEX_BITS & ((1 << OWNER_BITS) - 1)) - owners[0]
        short = short << bits | owner
    return _smallest(short)


def restored(short: np.ndarray, ticket: int, owners: Owners) -> np.ndarray:
    """Returns the places that `shortened` was given.

    Args:
        short: What it returned.
        ticket: Of the batch.
        owners: Whom the places name.

    Raises:
        ValueError: It is nothing of the kind.
    """
    _check_type("Places", short)
    bits, count = _owner_bits(owners), owners[1] - owners[0]
    most = int(short.max(initial=0))
    if most >> bits >= 1 << INDEX_BITS:
        raise ValueError(
            f"A place has an index of {INDEX_BITS} bits beside its owner's {bits}. Received: {most}"
        )
    whole: np.ndarray = short.astype(np.int64)
    owner = whole & ((1 << bits) - 1)
    if owner.max(initial=0) >= count:
        raise ValueError(f"Places name one of {count} owners. Received: {owner.max()}")
    return (whole >> bits) + (owner << INDEX_BITS) + place_of(ticket, owners[0], 0)


def _owner_bits(owners: Owners) -> int:
    return (owners[1] - owners[0] - 1).bit_length()


def _smallest(whole: np.ndarray) -> np.ndarray:
    """The same numbers, none of which is negative, in as few bytes as will do."""
    return whole.astype(np.min_scalar_type(int(whole.max(initial=0))))


def _check_type(what: str, array: np.ndarray) -> None:
    if array.dtype.kind != "u":
        raise ValueError(f"{what} travel as unsigned numbers. Received: {array.dtype}")


def _parts(leaf: Leaf) -> list[np.ndarray]:
    """What of a leaf travels beside its values."""
    if leaf.kind == RAGGED:
        rows = [len(splits) - 1 for splits in leaf.parts[1:]] + [len(leaf.values)]
        return [_lengths(*each) for each in zip(leaf.parts, rows, strict=True)]
    for array in leaf.parts:
        if array.min(initial=0) < 0:
            raise ConfigError(
                f"Indices and shape of a sparse tensor are not negative. Received: {array.min()}"
            )
    return [_smallest(array) for array in leaf.parts]


def _lengths(splits: np.ndarray, rows: int) -> np.ndarray:
    lengths = np.diff(splits)
    if not len(splits) or splits[0] != 0 or splits[-1] != rows or lengths.min(initial=0) < 0:
        raise ConfigError(
            f"Row splits of a ragged tensor rise from 0 to its {rows} values. Received: {splits}"
        )
    return _smallest(lengths)


def _leaf(kind: str, parts: Sequence[np.ndarray]) -> Leaf:
    """The leaf of those arrays; places as they came."""
    if not parts or not {DENSE: len(parts) == 1, RAGGED: len(parts) > 1}.get(
        kind, kind == SPARSE and len(parts) == 3
    ):
        raise ValueError(f"A {kind} tensor has other parts. Received: {len(parts)}")
    values, *others = parts
    if kind == RAGGED:
        return Leaf(kind, values, _splits(others, values))
    if kind == SPARSE:
        _check_sparse(values, *others)
    return Leaf(kind, values, tuple(part.astype(np.int64) for part in others))


def _splits(lengths: Sequence[np.ndarray], values: np.ndarray) -> tuple[np.ndarray, ...]:
    made = []
    for its, rows in zip(lengths, [*lengths[1:], values], strict=True):
        _check_type("Lengths of rows", its)
        splits = np.zeros(its.size + 1, np.int64)
        np.cumsum(its, dtype=np.int64, out=splits[1:])
        if its.ndim != 1 or not rows.ndim or splits[-1] != len(rows):
            raise ValueError(
                f"Lengths of rows are those of values of shape {rows.shape}. "
                f"Received: {splits[-1]} in all, of shape {its.shape}"
            )
        made.append(splits)
    return tuple(made)


def _check_sparse(values: np.ndarray, indices: np.ndarray, shape: np.ndarray) -> None:
    _check_type("Indices", indices)
    _check_type("Dense shapes", shape)
    if shape.ndim != 1 or values.ndim != 1 or indices.shape != (len(values), len(shape)):
        raise ValueError(
            "A sparse tensor has a value for each row of indices, with a number for each side. "
            f"Received: shapes {values.shape}, {indices.shape}, {shape.shape}"
        )
