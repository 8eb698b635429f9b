"""Data sets that a data node reads for trainers: epoch by epoch, each batch split in two halves."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid._remote import remote
from tfhybrid.data_nodes.dense_half import to_arrays
from tfhybrid.data_nodes.elements import Leaf, flatten
from tfhybrid.data_nodes.grouping import LABEL, by_label
from tfhybrid.data_nodes.key_links import BatchId, KeyLinks, SentKeys
from tfhybrid.data_nodes.splitting import Declared, digest_of, split
from tfhybrid.errors import ConfigError, DataError, StoreError, TfhybridError

BY_BATCH, BY_FILE = "batch", "file"
UNKNOWN_LENGTH = -2  # `tf.data.UNKNOWN_CARDINALITY`

# Calls a function of the job's script that makes a data set. Takes the name of the function, the
# shard as (number, number of shards), and further arguments of the function.
MakeDataset = Callable[[str, tuple[int, int], Mapping[str, Any]], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class Reading:
    """Description of the part of a data set that one data node reads for one trainer.

    Args:
        function: Name of the function of the script that makes the data set.
        arguments: Arguments of that function after the shard.
        rank: Rank of the trainer.
        size: Number of trainers.
        node: Number of this data node, from 0.
        nodes: Number of data nodes.
        share: Division of the work among data nodes. `BY_BATCH`: each one reads the whole shard of
            the trainer, and sends every `nodes`-th batch. `BY_FILE`: each one reads a shard of its
            own, and sends all of it.
        group_by: `LABEL` for batches of one label value each; `None` (default) for batches as the
            data set has them.
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
        """The shard that this data node reads, as (number, number of shards)."""
        if self.share == BY_FILE:
            return self.rank * self.nodes + self.node, self.size * self.nodes
        return self.rank, self.size

    def part(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Selects the batches that this data node sends, after grouping them if required.

        Args:
            elements: All batches of `shard`, in order.

        Yields:
            The batches of this data node, in order.

        Raises:
            ConfigError: Batches cannot be grouped by label; raised while iterating.
        """
        if self.group_by == LABEL:
            elements = by_label(elements)
        if self.share == BY_FILE:
            return elements
        return itertools.islice(elements, self.node, None, self.nodes)


@dataclasses.dataclass(frozen=True)
class OpenedEpoch:
    """Request of a trainer for an epoch of a data set, or for the rest of one.

    Args:
        reading: Part of the data set that the data node reads.
        session: Session of the job.
        owners: Name and address of the current owner of each shard.
        silence: Time in seconds after which a silent owner counts as lost.
        declared: Features that the model looks up, and the owners of their rows.
        data_set: Number of the data set among those of the trainer.
        trains: Whether the batches are trained.
        join: Delivery of the rows, as `SentKeys.join`.
        staleness: Maximum number of updates that the rows may lack.
        epoch: Epoch, from 0.
        number: Number of the first batch to send, among those of this data node.
        before: Digest of the batch before it, which must be the same as when it was sent. Default:
            empty, the trainer has not received that batch in this epoch.
    """

    reading: Reading
    session: str
    owners: Sequence[tuple[str, tuple[str, int]]]
    silence: float
    declared: Declared
    data_set: int
    trains: bool
    join: str
    staleness: int
    epoch: int
    number: int
    before: str = ""


@dataclasses.dataclass(frozen=True)
class DenseBatch:
    """Dense half of a batch, as it travels to the trainer.

    Args:
        structure: Structure of the batch.
        kinds: Kind of each leaf (tensor).
        arrays: Arrays of the leaves, as `dense_half.to_arrays` names them.
        batch: Text of the batch's `BatchId`.
        digest: Digest of the batch.
        key_bytes: Bytes of the keys that the owners hold.
        keys: Number of distinct keys of each table, over all owners.
    """

    structure: dict[str, Any]
    kinds: list[str]
    arrays: dict[str, np.ndarray]
    batch: str
    digest: str
    key_bytes: int
    keys: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Description:
    """Description of the elements of a data set, before the first epoch.

    Args:
        structure: Structure of an element.
        leaves: Kind, dtype and shape of each of its tensors, as `told_by` returns them.
        cardinality: Number of elements: -1 if there is no end, -2 if it is not known.
    """

    structure: dict[str, Any]
    leaves: list[dict[str, Any]]
    cardinality: int


class DataStream:
    """A data set that a data node reads for a trainer. Not thread-safe: one thread serves it.

    Args:
        make: Function that makes the data set.
        connect: Function that connects to the owners that an epoch names.
    """

    def __init__(self, make: MakeDataset, connect: Callable[[OpenedEpoch], KeyLinks]) -> None:
        self._make = make
        self._connect = connect
        self._owners: KeyLinks | None = None
        self._reading: Reading | None = None
        self._dataset: Iterable[Any] = ()
        self._opened: OpenedEpoch | None = None  # with the owners of the latest `follow` call
        self._elements: Iterator[Any] = iter(())
        self._begun = 0  # epochs of `_dataset` that were started
        self._number = 0  # number of the next batch to send
        self.sent = 0  # number of batches sent in all epochs

    @property
    def staleness(self) -> int:
        """Maximum number of updates that the rows of a batch may lack; 0 before the first epoch."""
        return 0 if self._opened is None else self._opened.staleness

    def close(self) -> None:
        """Closes the connections to the owners; does nothing if there are none."""
        if self._owners is not None:
            self._owners.close()
            self._owners = None

    @remote
    def describe(self, reading: Reading) -> Description:
        """Returns the structure and the types of elements, before the first epoch.

        Args:
            reading: Part of the data set that this data node reads.

        Raises:
            ConfigError: The script has no such function, or the function's data set is empty.
            DataError: The function failed.
        """
        dataset = self._make(reading.function, reading.shard, reading.arguments)
        spec = getattr(dataset, "element_spec", None)
        if spec is None:
            first = next(iter(dataset), None)
            if first is None:
                raise ConfigError(
                    f"{reading.function} must return a data set with at least one batch. "
                    "Received: an empty one"
                )
            structure, tensors = flatten(first)
            leaves = [_like(Leaf.of(tensor)) for tensor in tensors]
        else:
            structure, specs = flatten(spec)
            leaves = [told_by(each) for each in specs]
        length = _length(dataset)
        if reading.group_by is not None:
            leaves, length = [of_any_size(each) for each in leaves], UNKNOWN_LENGTH
        return Description(structure, leaves, length)

    @remote
    def open(self, opened: OpenedEpoch) -> None:
        """Starts an epoch at the batch that the trainer needs next.

        Args:
            opened: Epoch to read.

        Raises:
            ConfigError: The script has no such function.
            DataError: The function failed, or the data set has another batch than before.
            StoreError: An owner of keys cannot be reached.
        """
        dataset = self._dataset_of(opened.reading)
        self._connect_to_owners_of(opened)
        if opened.epoch < self._begun:  # a data set cannot go back to an earlier epoch
            self._reading = None
            dataset = self._dataset_of(opened.reading)
        while self._begun <= opened.epoch:  # each iter() may shuffle differently: none is left out
            elements = iter(dataset)
            self._begun += 1
        self._number = opened.number
        checked = int(bool(opened.before))
        self._elements = itertools.islice(
            opened.reading.part(elements), self._number - checked, None
        )
        if checked:
            self._check_same(opened)

    @remote
    def follow(self, owners: Sequence[tuple[str, tuple[str, int]]]) -> None:
        """Sends keys to the current owners from now on, within an epoch.

        Args:
            owners: Name and address of the owner of each shard.

        Raises:
            StoreError: An owner cannot be reached.
        """
        if self._opened is not None and self._owners is not None:
            self._connect_to_owners_of(dataclasses.replace(self._opened, owners=owners))

    @remote
    def next(self, ticket: int, dropped: list[int], versions: dict[str, int]) -> DenseBatch | None:
        """Returns the dense half of the next batch, once all owners have its keys.

        Args:
            ticket: Number of the batch; its key handles contain it.
            dropped: Tickets of batches whose keys can be freed.
            versions: Version of each table with every update before the batch, by name.

        Returns:
            The dense half, or `None` after the last batch.

        Raises:
            StoreError: No epoch is open, or an owner is lost.
            DataError: The data set cannot be read.
            ConfigError: The batch cannot be split: it has no dict of features, or a feature has
                other values than integers.
        """
        opened = self._opened
        if opened is None or self._owners is None:
            raise StoreError("A data set must be opened first. Received: next before open")
        element = self._read()
        if element is None:
            self._owners.drop(dropped)
            return None
        structure, tensors = flatten(element)
        leaves = [Leaf.of(tensor) for tensor in tensors]
        halves = split(opened.declared, structure, leaves, ticket)
        name = BatchId(
            opened.session,
            (opened.reading.rank, opened.data_set),
            opened.epoch,
            opened.reading.node,
            self._number,
        ).text()
        message = SentKeys(
            ticket,
            (name, halves.digest),
            opened.reading.rank,
            opened.trains,
            dropped,
            versions,
            opened.join,
            opened.staleness,
        )
        self._owners.send(message, halves.keys)
        self._number += 1
        self.sent += 1
        kinds, arrays = to_arrays(halves.leaves, halves.with_handles, opened.declared.owners)
        size = sum(each.nbytes for of_owner in halves.keys for each in of_owner.values())
        return DenseBatch(structure, kinds, arrays, name, halves.digest, size, _counts(halves.keys))

    def _dataset_of(self, reading: Reading) -> Iterable[Any]:
        if reading != self._reading:
            self._dataset = self._make(reading.function, reading.shard, reading.arguments)
            self._reading, self._begun = reading, 0
        return self._dataset

    def _connect_to_owners_of(self, opened: OpenedEpoch) -> None:
        # Owners change where shards have moved to other nodes.
        if self._owners is None or self._opened is None or opened.owners != self._opened.owners:
            self.close()
            self._owners = self._connect(opened)
        self._opened = opened

    def _check_same(self, opened: OpenedEpoch) -> None:
        """Reads the batch before the first one to send; raises `DataError` if it has changed."""
        element = self._read()
        if element is not None:
            structure, tensors = flatten(element)
            digest = digest_of(structure, [Leaf.of(tensor) for tensor in tensors])
        if element is None or digest != opened.before:
            raise DataError(
                f"{opened.reading.function} must return the same batches again after a data node "
                f"was restarted. Received: another batch {opened.number - 1} of epoch "
                f"{opened.epoch}. Were files of the data set changed, or is it shuffled without a "
                "seed?"
            )

    def _read(self) -> Any:
        try:
            return next(self._elements, None)
        except TfhybridError:
            raise
        except Exception as error:  # the user's pipeline may raise anything
            raise DataError(f"Reading the data set failed: {error!r}") from error


def _counts(keys: Sequence[Mapping[str, np.ndarray]]) -> dict[str, int]:
    """Returns the number of distinct keys of each table, over all owners."""
    counts: dict[str, int] = {}
    for of_owner in keys:
        for table, of_table in of_owner.items():
            counts[table] = counts.get(table, 0) + len(of_table)
    return counts


def of_any_size(leaf: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a description of a tensor, as `told_by` makes it, with an unknown number of samples.

    A scalar, or a tensor of unknown rank, is unchanged.

    Args:
        leaf: Description of the tensor.
    """
    return {**leaf, "shape": leaf["shape"] and [None, *leaf["shape"][1:]]}


def told_by(spec: Any) -> dict[str, Any]:
    """Returns the description of a tensor for messages: kind, dtype and shape.

    A size or shape that is not known is `None`; a ragged tensor has a `ragged_rank`, too.

    Args:
        spec: The `tf.TypeSpec` of the tensor.
    """
    shape = None if spec.shape.rank is None else [*map(_side, spec.shape)]
    leaf: dict[str, Any] = {"kind": "dense", "dtype": spec.dtype.name, "shape": shape}
    if hasattr(spec, "ragged_rank"):
        return leaf | {"kind": "ragged", "ragged_rank": spec.ragged_rank}
    if "Sparse" in type(spec).__name__:
        return leaf | {"kind": "sparse"}
    return leaf


def _side(size: Any) -> int | None:
    return None if size is None else int(size)


def _like(leaf: Leaf) -> dict[str, Any]:
    """Returns the description of a leaf that holds for other batches, too."""
    description: dict[str, Any] = {"kind": leaf.kind, "dtype": leaf.values.dtype.name}
    if leaf.kind == "ragged":
        flat = leaf.values.shape[1:]
        return description | {
            "ragged_rank": len(leaf.parts),
            "shape": [None] * (len(leaf.parts) + 1) + list(flat),
        }
    if leaf.kind == "sparse":
        return description | {"shape": [None] * len(leaf.parts[1])}
    return description | {"shape": [None, *leaf.values.shape[1:]] if leaf.values.ndim else []}


def _length(dataset: Any) -> int:
    """Returns the number of elements: -1 if there is no end, -2 if it is not known."""
    try:
        return int(dataset.cardinality()) if hasattr(dataset, "cardinality") else len(dataset)
    except TypeError:
        return UNKNOWN_LENGTH
