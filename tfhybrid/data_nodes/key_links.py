"""The sparse half of batches: how data nodes give embedding nodes the keys that they own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import Answer, Called, Caller
from tfhybrid.rpc.handshake import Greeting, Link
from tfhybrid.rpc.tls import Tls, dialled

REQUEST, NOTICE, UNASKED = "request", "notice", "unasked"
JOINS = (REQUEST, NOTICE, UNASKED)

_CONNECT_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class BatchId:
    """Names a batch; it keeps its name when it is read again.

    Args:
        run: Session of the job.
        stream: The rank and the number of its data set, in the order in which the rank made them.
        epoch: How often the data set was begun before.
        node: Number of the data node that reads it.
        number: Among the batches that this data node reads of the data set.
    """

    run: str
    stream: tuple[int, int]
    epoch: int
    node: int
    number: int

    def text(self) -> str:
        """Returns it in one word, for messages and logs."""
        rank, data_set = self.stream
        return f"{self.run}/{rank}.{data_set}/{self.epoch}/{self.node}/{self.number}"


@dataclasses.dataclass(frozen=True)
class SentKeys:
    """What a data node tells the owners of a batch.

    Args:
        ticket: Under which places name the batch.
        batch: Its id and its digest.
        rank: Of the trainer that has it.
        trains: Whether there may be an update of it.
        dropped: Tickets of batches that are not needed any longer.
        versions: Of each table whose rows owners send, with every update before the batch.
        join: Who speaks first: `REQUEST`: the trainer asks for rows, and these are not sent.
            `NOTICE`: owners send them when the data node says so. `UNASKED`: as soon as they can.
        staleness: How many updates its rows may lack.
    """

    ticket: int
    batch: tuple[str, str]
    rank: int
    trains: bool
    dropped: Sequence[int]
    versions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    join: str = REQUEST
    staleness: int = 0


class KeyLinks:
    """A data node's connections to the owners of a job; of one thread.

    Args:
        callers: To the node of each share of the slots.
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
        """Connects to all owners.

        Args:
            nodes: Name and address of the node of each share.
            token: Of the cluster.
            name: What this data node calls itself.
            session: Of the job.
            silence: Seconds after which a silent node counts as gone.
            tls: What encrypts the connections; `None` for none.

        Raises:
            StoreError: One cannot be reached.
        """
        made = cls([])
        try:
            for share, (node, address) in enumerate(nodes):
                greeting = Greeting(Link.BATCHES, name, session, share=share).text()
                wrap = dialled(tls, node)
                link = listener.dial(address, token, greeting, _CONNECT_SECONDS, silence, wrap)
                made._callers.append(Caller(link, node))
        except OSError as error:
            made.close()
            raise StoreError(
                f"{name} cannot connect to {node} at {address[0]} port {address[1]} ({error})"
            ) from error
        return made

    def send(self, told: SentKeys, keys: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Gives every owner its keys, and returns when all hold them.

        Args:
            told: Of the batch.
            keys: Of each owner, by table.

        Raises:
            NameTakenError: One holds the batch with another digest.
            StoreError: One is gone.
        """
        for caller, its in zip(self._callers, keys, strict=True):
            named = {f"keys.{number}": of_table for number, of_table in enumerate(its.values())}
            arguments = dataclasses.asdict(told) | {"tables": list(its)}
            caller.start("put_batch", arguments, named)
        self._finish()
        if told.join == NOTICE:
            notice = {"rank": told.rank, "ticket": told.ticket, "versions": dict(told.versions)}
            for caller in self._callers:
                caller.start("send_batch", notice)
            self._finish()

    def _finish(self) -> None:
        """Waits for the answers of all owners."""
        failures: list[TfhybridError] = []
        for caller in self._callers:
            try:
                caller.finish()
            except TfhybridError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def drop(self, tickets: Sequence[int]) -> None:
        """Tells all owners of batches that are not needed any longer.

        Raises:
            StoreError: One is gone.
        """
        for caller in self._callers:
            caller.ask("drop_batches", {"tickets": list(tickets)})

    def close(self) -> None:
        """Ends the connections; what owners hold stays."""
        for caller in self._callers:
            caller.close()


def key_calls(engine: Engine) -> dict[str, Called]:
    """Returns what a data node may ask of an embedding node.

    Args:
        engine: Of the embedding node.
    """

    def put_batch(its: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        split_batches.drop(engine, its["dropped"])
        keys = {table: arrays[f"keys.{number}"] for number, table in enumerate(its["tables"])}
        batch_id, digest = its["batch"]
        split_batches.put(
            engine,
            its["ticket"],
            (batch_id, digest),
            its["rank"],
            keys,
            trains=its["trains"],
            staleness=its["staleness"],
        )
        if its["join"] == UNASKED:
            split_batches.send(engine, its["rank"], its["ticket"], its["versions"])
        return None, {}

    def send_batch(its: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        split_batches.send(engine, its["rank"], its["ticket"], its["versions"])
        return None, {}

    def drop_batches(its: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        split_batches.drop(engine, its["tickets"])
        return None, {}

    return {"put_batch": put_batch, "send_batch": send_batch, "drop_batches": drop_batches}
