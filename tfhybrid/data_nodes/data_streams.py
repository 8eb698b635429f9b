"""What a data node does for a data set of a trainer: reads it epoch by epoch, and splits it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tfhybrid.data_nodes.dense_half import to_arrays
from tfhybrid.data_nodes.elements import Leaf, flatten
from tfhybrid.data_nodes.grouping import LABEL, by_label
from tfhybrid.data_nodes.key_links import BatchId, SentKeys
from tfhybrid.data_nodes.splitting import Declared, split
from tfhybrid.errors import ConfigError, DataError, StoreError, TfhybridError
from tfhybrid.rpc.calls import Answer, Called

BY_BATCH, BY_FILE = "batch", "file"
UNKNOWN_LENGTH = -2  # as `tf.data` has it

# Makes the data set that a function of the script returns for a shard: its name, which shard, of
# how many, and further arguments.
MakeDataset = Callable[[str, tuple[int, int], Mapping[str, Any]], Iterable[Any]]


class Owners(Protocol):
    """Where keys go: `KeyLinks`."""

    def send(self, told: SentKeys, keys: list[dict[str, np.ndarray]]) -> None:
        """Gives every owner its keys."""

    def drop(self, tickets: Sequence[int]) -> None:
        """Tells all owners of batches that are not needed any longer."""

    def close(self) -> None:
        """Ends the connections."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a data set is read.

    Args:
        function: Of the script, that makes it.
        arguments: Of that function, beside the shard.
        rank: Of the trainer.
        size: Number of trainers.
        node: Number of this data node.
        nodes: Number of all data nodes.
        share: `BY_BATCH`: each data node reads the shard of the trainer, and sends every so many'th
            batch. `BY_FILE`: each data node reads a shard of its own.
        group_by: `LABEL`: batches of one label value each; `None`: as they are.
    """

    function: str
    arguments: Mapping[str, Any]
    rank: int
    size: int
    node: int
    nodes: int
    share: str
    group_by: str | None = None

    @property
    def shard(self) -> tuple[int, int]:
        """The shard that this data node reads, and of how many."""
        if self.share == BY_FILE:
            return self.rank * self.nodes + self.node, self.size * self.nodes
        return self.rank, self.size

    def part(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Returns the elements of that shard that this data node sends."""
        if self.group_by == LABEL:
            elements = by_label(elements)
        if self.share == BY_FILE:
            return elements
        return itertools.islice(elements, self.node, None, self.nodes)


class DataStream:
    """A data set that a data node reads for a trainer; of one thread.

    Args:
        make: Makes the data set.
        connect: Connects to the owners that a session's trainer names.
    """

    def __init__(self, make: MakeDataset, connect: Callable[[Mapping[str, Any]], Owners]) -> None:
        self._make = make
        self._connect = connect
        self._owners: Owners | None = None
        self._reading: Reading | None = None
        self._dataset: Iterable[Any] = ()
        self._declared = Declared({}, {}, 0, 1)
        self._told: Mapping[str, Any] = {}
        self._elements: Iterator[Any] = iter(())
        self._begun = 0  # how often
        self._number = 0  # of the next batch that is sent
        self.sent = 0  # batches

    @property
    def staleness(self) -> int:
        """How many updates the rows of its batches may lack; 0 before an epoch has begun."""
        return int(self._told.get("staleness", 0))

    def calls(self) -> dict[str, Called]:
        """Returns what the trainer may ask."""
        return {
            "describe": self._describe,
            "open": self._open,
            "next": self._next,
            "follow": self._follow,
        }

    def close(self) -> None:
        """Ends the connections to the owners."""
        if self._owners is not None:
            self._owners.close()
            self._owners = None

    def _describe(self, its: Mapping[str, Any], _: Mapping[str, np.ndarray]) -> Answer:
        """What elements are like, before any is asked for."""
        reading = Reading(**its["reading"])
        dataset = self._make(reading.function, reading.shard, reading.arguments)
        spec = getattr(dataset, "element_spec", None)
        if spec is None:
            first = next(iter(dataset), None)
            if first is None:
                raise ConfigError(f"{reading.function} returned a data set without data")
            structure, tensors = flatten(first)
            leaves = [_like(Leaf.of(tensor)) for tensor in tensors]
        else:
            structure, specs = flatten(spec)
            leaves = [told_by(each) for each in specs]
        length = _length(dataset)
        if reading.group_by is not None:
            leaves, length = [of_any_size(each) for each in leaves], UNKNOWN_LENGTH
        return {"structure": structure, "leaves": leaves, "cardinality": length}, {}

    def _made(self, its: Mapping[str, Any]) -> Iterable[Any]:
        reading = Reading(**its["reading"])
        if reading != self._reading:
            self._dataset = self._make(reading.function, reading.shard, reading.arguments)
            self._reading, self._begun = reading, 0
        return self._dataset

    def _open(self, its: Mapping[str, Any], _: Mapping[str, np.ndarray]) -> Answer:
        """Begins an epoch, at the batch that the trainer wants next."""
        dataset = self._made(its)
        assert self._reading is not None
        self._declared = Declared.from_json(its["declared"])
        self._send_to_owners_of(its)
        epoch, self._number = int(its["epoch"]), int(its["number"])
        if epoch < self._begun:  # a data set begins its epochs in order
            self._dataset = dataset = self._make(
                self._reading.function, self._reading.shard, self._reading.arguments
            )
            self._begun = 0
        while self._begun <= epoch:  # what shuffles does so each time in another way
            elements = iter(dataset)
            self._begun += 1
        self._elements = itertools.islice(self._reading.part(elements), self._number, None)
        return None, {}

    def _follow(self, its: Mapping[str, Any], _: Mapping[str, np.ndarray]) -> Answer:
        """Gives keys to the nodes that have the rows now, in the midst of an epoch."""
        if self._owners is not None:
            self._send_to_owners_of({**self._told, "owners": its["owners"]})
        return None, {}

    def _send_to_owners_of(self, told: Mapping[str, Any]) -> None:
        if self._owners is None or told["owners"] != self._told["owners"]:  # shares have moved
            self.close()
            self._owners = self._connect(told)
        self._told = told

    def _next(self, its: Mapping[str, Any], _: Mapping[str, np.ndarray]) -> Answer:
        """The next batch, once all owners have its keys."""
        if self._reading is None or self._owners is None:
            raise StoreError("A data set is opened first")
        element = self._read()
        if element is None:
            self._owners.drop(its["dropped"])
            return {"end": True}, {}
        structure, tensors = flatten(element)
        ticket = int(its["ticket"])
        leaves = [Leaf.of(tensor) for tensor in tensors]
        halves = split(self._declared, structure, leaves, ticket)
        name = BatchId(
            str(self._told["session"]),
            (self._reading.rank, int(self._told["data_set"])),
            int(self._told["epoch"]),
            self._reading.node,
            self._number,
        ).text()
        told = SentKeys(
            ticket,
            (name, halves.digest),
            self._reading.rank,
            bool(self._told["trains"]),
            its["dropped"],
            its["versions"],
            str(self._told["join"]),
            self.staleness,
        )
        self._owners.send(told, halves.keys)
        self._number += 1
        self.sent += 1
        kinds, arrays = to_arrays(halves.leaves, halves.places, self._declared.owners)
        keys = sum(each.nbytes for of_owner in halves.keys for each in of_owner.values())
        answer = {
            "structure": structure,
            "kinds": kinds,
            "batch": name,
            "digest": halves.digest,
            "key_bytes": keys,
            "keys": _counts(halves.keys),
        }
        return answer, arrays

    def _read(self) -> Any:
        try:
            return next(self._elements, None)
        except TfhybridError:
            raise
        except Exception as error:  # whatever the user's pipeline raises
            raise DataError(f"Reading the data set failed: {error!r}") from error


def _counts(keys: Sequence[Mapping[str, np.ndarray]]) -> dict[str, int]:
    """The distinct keys of each table."""
    counts: dict[str, int] = {}
    for of_owner in keys:
        for table, its in of_owner.items():
            counts[table] = counts.get(table, 0) + len(its)
    return counts


def of_any_size(told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what leaves are like whose batches have other numbers of samples."""
    return {**told, "shape": told["shape"] and [None, *told["shape"][1:]]}


def told_by(spec: Any) -> dict[str, Any]:
    """Returns a `tf.TypeSpec` as a message has it."""
    shape = None if spec.shape.rank is None else [*map(_side, spec.shape)]
    told: dict[str, Any] = {"kind": "dense", "dtype": spec.dtype.name, "shape": shape}
    if hasattr(spec, "ragged_rank"):
        return told | {"kind": "ragged", "ragged_rank": spec.ragged_rank}
    if "Sparse" in type(spec).__name__:
        return told | {"kind": "sparse"}
    return told


def _side(size: Any) -> int | None:
    return None if size is None else int(size)


def _like(leaf: Leaf) -> dict[str, Any]:
    """What leaves of other batches are like, too."""
    told: dict[str, Any] = {"kind": leaf.kind, "dtype": leaf.values.dtype.name}
    if leaf.kind == "ragged":
        flat = leaf.values.shape[1:]
        return told | {
            "ragged_rank": len(leaf.parts),
            "shape": [None] * (len(leaf.parts) + 1) + list(flat),
        }
    if leaf.kind == "sparse":
        return told | {"shape": [None] * len(leaf.parts[1])}
    return told | {"shape": [None, *leaf.values.shape[1:]] if leaf.values.ndim else []}


def _length(dataset: Any) -> int:
    """How many elements there are, -1 for ever, -2 where it is not known."""
    try:
        return int(dataset.cardinality()) if hasattr(dataset, "cardinality") else len(dataset)
    except TypeError:
        return UNKNOWN_LENGTH
