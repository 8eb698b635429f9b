"""A data node's work on a batch: sparse keys go to their owners, and a trainer gets the rest."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.core import split_batches
from tfhybrid.data_nodes.elements import Leaf, Structure, features_of
from tfhybrid.errors import ConfigError

_DIGEST_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Declared:
    """What the model of a job looks up, and who owns it.

    Args:
        tables: The table of each feature.
        placements: Of each table, as of `Engine.open_table`.
        first_owner: The first host that owns rows.
        hosts: How many hosts there are.
    """

    tables: Mapping[str, str]
    placements: Mapping[str, tuple[int, int]]
    first_owner: int
    hosts: int

    @property
    def owners(self) -> tuple[int, int]:
        """The first host that owns rows, and the number of all hosts."""
        return self.first_owner, self.hosts

    def leaves_in(self, structure: Structure) -> dict[str, int]:
        """Returns the leaf of each feature that the model looks up and a batch has.

        Args:
            structure: Of the batch.

        Raises:
            ConfigError: As of `features_of`.
        """
        at = features_of(structure)
        return {feature: at[feature] for feature in self.tables if feature in at}

    def as_json(self) -> dict[str, Any]:
        """Returns it as a message has it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Declared:
        """Returns what `as_json` was made from.

        Raises:
            KeyError, TypeError, ValueError: It is nothing of the kind.
        """
        placements = {
            str(table): (int(kind), int(owner))
            for table, (kind, owner) in fields["placements"].items()
        }
        tables = {str(feature): str(table) for feature, table in fields["tables"].items()}
        return cls(tables, placements, int(fields["first_owner"]), int(fields["hosts"]))


@dataclasses.dataclass(frozen=True)
class Split:
    """A batch in two halves.

    Args:
        leaves: For the trainer: places where keys were.
        places: Numbers of the leaves that have places.
        keys: For each owner, by table.
        digest: Of the batch as it was.
    """

    leaves: list[Leaf]
    places: Collection[int]
    keys: list[dict[str, np.ndarray]]
    digest: str


def split(declared: Declared, structure: Structure, leaves: Sequence[Leaf], ticket: int) -> Split:
    """Splits a batch.

    Args:
        declared: What the model looks up.
        structure: Of the batch.
        leaves: Of the batch, with keys.
        ticket: Of the batch.

    Raises:
        ConfigError: A feature has no whole numbers, or the batch has too many keys.
    """
    of_tables: dict[str, list[int]] = {}
    looked_up = declared.leaves_in(structure)
    for feature, number in looked_up.items():
        keys = leaves[number].values
        if keys.dtype.kind not in "iu":
            raise ConfigError(
                f"Keys of feature '{feature}' are whole numbers. Received: {keys.dtype}"
            )
        of_tables.setdefault(declared.tables[feature], []).append(number)
    mine = list(leaves)
    owners = declared.hosts - declared.first_owner
    keys_of: list[dict[str, np.ndarray]] = [{} for _ in range(owners)]
    for table, numbers in of_tables.items():
        places, owned = split_batches.number_places(
            table,
            declared.placements[table],
            declared.owners,
            ticket,
            [leaves[number].values for number in numbers],
        )
        for number, of_feature in zip(numbers, places, strict=True):
            mine[number] = dataclasses.replace(leaves[number], values=of_feature)
        for owner, keys in enumerate(owned):
            if len(keys):
                keys_of[owner][table] = keys
    return Split(mine, looked_up.values(), keys_of, _digest(structure, leaves))


def _digest(structure: Structure, leaves: Sequence[Leaf]) -> str:
    made = hashlib.blake2b(repr(structure).encode(), digest_size=_DIGEST_BYTES)
    for leaf in leaves:
        for array in leaf.arrays():
            made.update(f"{leaf.kind}{array.dtype}{array.shape}".encode())
            made.update(np.ascontiguousarray(array).data)
    return made.hexdigest()
