"""The sparse half of batches: messages with which data nodes send keys to the embedding nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid._deprecated import renamed_value
from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import Answer, Called, Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.tls import Tls, dialled

# Deliveries of rows to the trainer, as messages spell them; `SentKeys.join` explains them.
PULL, NOTIFY, PUSH = "request", "notice", "unasked"
# The deliveries by the values of the argument `delivery` of `from_nodes`.
DELIVERIES = {"pull": PULL, "notify": NOTIFY, "push": PUSH}

_CONNECT_SECONDS = 30.0


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
    def connect(
        cls,
        nodes: Sequence[tuple[str, tuple[str, int]]],
        token: str,
        name: str,
        session: str,
        silence: float,
        tls: Tls | None = None,
    ) -> KeyLinks:
        """Connects to all owners, waiting up to 30 s for each. The caller closes the connections.

        Args:
            nodes: Name and address of the owner of each shard.
            token: Secret of the cluster.
            name: Name of this data node, for errors and logs of the owners.
            session: Session of the job.
            silence: Time in seconds after which a silent node counts as lost.
            tls: Certificates for TLS; `None` (default) for plain connections.

        Returns:
            The connections.

        Raises:
            StoreError: An owner cannot be reached.
        """
        links = cls([])
        try:
            for shard, (node, address) in enumerate(nodes):
                handshake = Handshake(Purpose.BATCHES, name, session, shard=shard).text()
                wrap = dialled(tls, node)
                link = listener.dial(address, token, handshake, _CONNECT_SECONDS, silence, wrap)
                links._callers.append(Caller(link, node))
        except OSError as error:
            links.close()
            raise StoreError(
                f"{name} cannot connect to {node} at {address[0]} port {address[1]} ({error})"
            ) from error
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
        for caller, of_owner in zip(self._callers, keys, strict=True):
            arrays = {f"keys.{number}": each for number, each in enumerate(of_owner.values())}
            arguments = dataclasses.asdict(message) | {"tables": list(of_owner)}
            caller.start("put_batch", arguments, arrays)
        self._finish()
        if message.join == NOTIFY:
            notice = {
                "rank": message.rank,
                "ticket": message.ticket,
                "versions": dict(message.versions),
            }
            for caller in self._callers:
                caller.start("send_batch", notice)
            self._finish()

    def _finish(self) -> None:
        """Waits for the answers of all owners, then raises the first failure."""
        failures: list[TfhybridError] = []
        for caller in self._callers:
            try:
                caller.finish()
            except TfhybridError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def drop(self, tickets: Sequence[int]) -> None:
        """Tells all owners that they can free the keys of these batches. Waits for their answers.

        Args:
            tickets: Numbers of the batches.

        Raises:
            StoreError: An owner is lost.
        """
        for caller in self._callers:
            caller.ask("drop_batches", {"tickets": list(tickets)})

    def close(self) -> None:
        """Closes the connections. Owners keep the batches that they hold."""
        for caller in self._callers:
            caller.close()


def key_calls(engine: Engine) -> dict[str, Called]:
    """Returns the calls that an embedding node answers for data nodes, by name.

    Args:
        engine: Engine of the embedding node.

    Returns:
        Functions that one connection's thread calls; each answers one kind of message.
    """

    def put_batch(arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        split_batches.drop(engine, arguments["dropped"])
        keys = {table: arrays[f"keys.{number}"] for number, table in enumerate(arguments["tables"])}
        batch_id, digest = arguments["batch"]
        split_batches.put(
            engine,
            arguments["ticket"],
            (batch_id, digest),
            arguments["rank"],
            keys,
            trains=arguments["trains"],
            staleness=arguments["staleness"],
        )
        if arguments["join"] == PUSH:
            split_batches.send(
                engine, arguments["rank"], arguments["ticket"], arguments["versions"]
            )
        return None, {}

    def send_batch(arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        split_batches.send(engine, arguments["rank"], arguments["ticket"], arguments["versions"])
        return None, {}

    def drop_batches(arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        split_batches.drop(engine, arguments["tickets"])
        return None, {}

    return {"put_batch": put_batch, "send_batch": send_batch, "drop_batches": drop_batches}
