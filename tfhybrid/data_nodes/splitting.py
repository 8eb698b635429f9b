"""Splitting of a batch in two halves: keys for their owners, and all other data for the trainer."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfhybrid.core import split_batches
from tfhybrid.data_nodes.elements import Leaf, Structure, features_of
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.values import Column, check


@dataclasses.dataclass(frozen=True)
class Declared:
    """Features that the model of a job looks up, and the owners of their rows.

    Args:
        tables: Name of the table of each feature.
        placements: Placement of each table: the arguments `placement` of `Engine.open_table`.
        first_owner: Number of the first host that owns rows.
        hosts: Number of all hosts.
    """

    tables: Mapping[str, str]
    placements: Mapping[str, tuple[int, int]]
    first_owner: int
    hosts: int

    @property
    def owners(self) -> tuple[int, int]:
        """Number of the first host that owns rows, and number of all hosts."""
        return self.first_owner, self.hosts

    def leaves_in(self, structure: Structure) -> dict[str, int]:
        """Returns the number of the leaf (tensor) of each feature that the model looks up.

        Features that the batch lacks are left out.

        Args:
            structure: Structure of the batch.

        Raises:
            ConfigError: The batch does not have a dict of features.
        """
        at = features_of(structure)
        return {feature: at[feature] for feature in self.tables if feature in at}


@dataclasses.dataclass(frozen=True)
class Split:
    """A batch in two halves.

    Args:
        leaves: Leaves for the trainer, with key handles in place of keys.
        with_handles: Numbers of the leaves that contain key handles.
        keys: Distinct keys for each owner, by table, in the order that key handles count.
        digest: Digest of the batch before it was split, in hexadecimal digits.
    """

    leaves: list[Leaf]
    with_handles: Collection[int]
    keys: list[dict[str, np.ndarray]]
    digest: str


def split(declared: Declared, structure: Structure, leaves: Sequence[Leaf], ticket: int) -> Split:
    """Splits a batch into the keys for their owners and the rest for the trainer.

    Args:
        declared: Features that the model looks up, and the owners of their rows.
        structure: Structure of the batch.
        leaves: Leaves of the batch, with keys.
        ticket: Ticket of the batch, 0 to `TICKETS` - 1.

    Returns:
        Both halves, and the digest of the batch.

    Raises:
        ConfigError: The batch has no dict of features, a feature contains something else than
            integers, or the batch has more keys than key handles can name.
        DataError: A key does not fit int64.
    """
    of_tables: dict[str, list[int]] = {}
    looked_up = declared.leaves_in(structure)
    for feature, number in looked_up.items():
        _check_keys(feature, leaves[number].values)
        of_tables.setdefault(declared.tables[feature], []).append(number)
    for_trainer = list(leaves)
    owners = declared.hosts - declared.first_owner
    keys_of: list[dict[str, np.ndarray]] = [{} for _ in range(owners)]
    for table, numbers in of_tables.items():
        handles, owned = split_batches.make_key_handles(
            table,
            declared.placements[table],
            declared.owners,
            ticket,
            [leaves[number].values for number in numbers],
        )
        for number, of_feature in zip(numbers, handles, strict=True):
            for_trainer[number] = dataclasses.replace(leaves[number], values=of_feature)
        for owner, keys in enumerate(owned):
            if len(keys):
                keys_of[owner][table] = keys
    return Split(for_trainer, looked_up.values(), keys_of, digest_of(structure, leaves))


def _check_keys(feature: str, keys: np.ndarray) -> None:
    if keys.dtype.kind not in "iu":
        raise ConfigError(
            f"Keys of feature '{feature}' must be whole numbers. Received: {keys.dtype}"
        )
    if np.can_cast(keys.dtype, np.int64):
        return
    flat = keys.reshape(-1)
    bad = check(Column(feature), flat).bad
    if bad.any():
        raise DataError(
            f"Keys of feature '{feature}' must be whole numbers of int64. "
            f"Received: {flat[int(np.argmax(bad))]}"
        )


def digest_of(structure: Structure, leaves: Sequence[Leaf]) -> str:
    """Returns the digest of a batch, in hexadecimal digits.

    Args:
        structure: Structure of the batch.
        leaves: Leaves of the batch, with keys.
    """
    digest = hashlib.sha256(repr(structure).encode())
    for leaf in leaves:
        for array in leaf.arrays():
            digest.update(f"{leaf.kind}{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
