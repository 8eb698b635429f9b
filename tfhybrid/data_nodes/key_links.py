"""The sparse half of batches: messages with which data nodes send keys to the embedding nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid._deprecated import renamed_value
from tfhybrid._remote import Int64Array, remote
from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.rpc.calls import Caller, ask_each
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.remote_methods import call_to

# Deliveries of rows to the trainer, as messages spell them; `SentKeys.join` explains them.
PULL, NOTIFY, PUSH = "request", "notice", "unasked"
# The deliveries by the values of the argument `delivery` of `from_nodes`.
DELIVERIES = {"pull": PULL, "notify": NOTIFY, "push": PUSH}


def renamed_delivery(name: str) -> str:
    """Returns the new name of a delivery and warns, if it is an old one; else returns it unchanged.

    Only a function with `renamed_arguments` may call it: the warning names the line that called
    that function.

    Args:
        name: Name of the delivery, new or old.
    """
    return renamed_value(name, request="pull", notice="notify", unasked="push", stacklevel=5)


@dataclasses.dataclass(frozen=True)
class BatchId:
    """Identity of a batch, which stays the same if the batch is read again.

    Args:
        run: Session of the job.
        stream: Rank of the trainer, and number of the data set among those of that trainer.
        epoch: Epoch of the data set, from 0.
        node: Number of the data node that reads the batch.
        number: Number of the batch among those that this data node reads in this epoch, from 0.
    """

    run: str
    stream: tuple[int, int]
    epoch: int
    node: int
    number: int

    def text(self) -> str:
        """Returns the identity as one word: "RUN/RANK.DATASET/EPOCH/NODE/NUMBER"."""
        rank, data_set = self.stream
        return f"{self.run}/{rank}.{data_set}/{self.epoch}/{self.node}/{self.number}"


@dataclasses.dataclass(frozen=True)
class SentKeys:
    """Message from a data node to an embedding node about the keys of one batch.

    Args:
        ticket: Number of the batch; its key handles contain it.
        batch: Text of the batch's `BatchId`, and digest of the batch.
        rank: Rank of the trainer that uses the batch.
        trains: Whether an update may follow.
        dropped: Tickets of batches whose keys can be freed.
        versions: Per table, the version with every update before the batch. Default: none.
        join: Delivery of the rows; messages spell its name so. `PULL` (default): the trainer
            requests them. `NOTIFY`: embedding nodes send them after a second message of the data
            node. `PUSH`: embedding nodes send them as soon as the updates before the batch are
            applied.
        staleness: Maximum number of updates that the rows may lack. Default 0.
    """

    ticket: int
    batch: tuple[str, str]
    rank: int
    trains: bool
    dropped: Sequence[int]
    versions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    join: str = PULL
    staleness: int = 0


class KeyLinks:
    """Connections of a data node to the owners of a job's keys. Not thread-safe.

    Args:
        callers: Connection to the owner of each shard of the slots, in their order.
    """

    def __init__(self, callers: Sequence[Caller]) -> None:
        self._callers = list(callers)

    @classmethod
    def connect(cls, owners: Sequence[Peer], name: str, session: str) -> KeyLinks:
        """Connects to all owners. The caller closes the connections.

        Args:
            owners: Owner of each shard.
            name: Name of this data node, for errors and logs of the owners.
            session: Session of the job.

        Returns:
            The connections.

        Raises:
            StoreError: An owner cannot be reached.
        """
        links = cls([])
        try:
            for shard, owner in enumerate(owners):
                handshake = Handshake(Purpose.BATCHES, name, session, shard=shard)
                links._callers.append(owner.caller(handshake))
        except BaseException:
            links.close()
            raise
        return links

    def send(self, message: SentKeys, keys: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Sends every owner its keys of a batch, and waits until all owners hold them.

        Args:
            message: Description of the batch.
            keys: Keys of each owner, int64, by table; one entry per connection.

        Raises:
            NameTakenError: An owner holds the batch with another digest, or another batch under the
                ticket.
            StoreError: An owner is lost, or refuses the batch. Once one is lost, the connections
                cannot be used any more.
        """
        ask_each(
            [
                (caller, call_to(KeyCalls.put_batch, message, of_owner))
                for caller, of_owner in zip(self._callers, keys, strict=True)
            ]
        )
        if message.join == NOTIFY:
            notice = call_to(
                KeyCalls.send_batch, message.rank, message.ticket, dict(message.versions)
            )
            ask_each([(caller, notice) for caller in self._callers])

    def drop(self, tickets: Sequence[int]) -> None:
        """Tells all owners that they can free the keys of these batches. Waits for their answers.

        Args:
            tickets: Numbers of the batches.

        Raises:
            StoreError: An owner is lost.
        """
        for caller in self._callers:
            caller.call(KeyCalls.drop_batches, tickets)

    def close(self) -> None:
        """Closes the connections. Owners keep the batches that they hold."""
        for caller in self._callers:
            caller.close()


class KeyCalls:
    """Calls that an embedding node answers for data nodes. One connection's thread uses it.

    Args:
        engine: Engine of the embedding node.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @remote
    def put_batch(self, message: SentKeys, keys: Mapping[str, Int64Array]) -> None:
        """Holds the keys of a batch.

        Args:
            message: Description of the batch.
            keys: Keys of this node, by table.

        Raises:
            NameTakenError: This node holds the batch with another digest, or another batch under
                the ticket.
            ConfigError: The ticket is out of range.
            StoreError: No store is open.
        """
        split_batches.drop(self._engine, message.dropped)
        batch = split_batches.SplitBatch(
            message.ticket, message.batch, message.rank, message.trains, message.staleness
        )
        split_batches.put(self._engine, batch, keys)
        if message.join == PUSH:
            self.send_batch(message.rank, message.ticket, message.versions)

    @remote
    def send_batch(self, rank: int, ticket: int, versions: Mapping[str, int]) -> None:
        """Sends the rows of a batch to its trainer, once the updates before it are applied.

        Args:
            rank: Rank of the trainer.
            ticket: Number of the batch.
            versions: Version of each table with every update before the batch, by name.

        Raises:
            StoreError: No store is open.
        """
        split_batches.send(self._engine, rank, ticket, versions)

    @remote
    def drop_batches(self, tickets: Sequence[int]) -> None:
        """Frees the keys of batches.

        Args:
            tickets: Numbers of the batches.

        Raises:
            StoreError: No store is open.
        """
        split_batches.drop(self._engine, tickets)
