"""The dense half of batches: how a trainer gets them from data nodes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from tfhybrid import errors
from tfhybrid.data_nodes.data_request import Trainer, Wanted
from tfhybrid.data_nodes.data_streams import Reading
from tfhybrid.data_nodes.dense_half import from_arrays
from tfhybrid.data_nodes.elements import Leaf, Structure
from tfhybrid.data_nodes.key_links import REQUEST
from tfhybrid.data_nodes.open_epochs import OpenEpochs
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.data_nodes.tickets import Holding, TicketBook
from tfhybrid.errors import ConfigError, PeerDiedError, StoreError, TfhybridError
from tfhybrid.rpc.messages import MessageLink

_log = logging.getLogger("tfhybrid.data_nodes")

_RETURN_SECONDS = 60.0  # within which a data node that died is back
_RETRY_SECONDS = 0.2

Dial = Callable[[str], MessageLink]
Batch = tuple[Structure, list[Leaf]]
Message = tuple[dict[str, Any], dict[str, np.ndarray]]
_Done = TypeVar("_Done")


@dataclasses.dataclass
class _Asked:
    """A batch that a data node was asked for, and what it said."""

    node: int
    ticket: int
    dropped: list[int]
    versions: Mapping[str, int]
    answer: Message | None = None

    def message(self) -> dict[str, Any]:
        arguments = {
            "ticket": self.ticket,
            "dropped": self.dropped,
            "versions": dict(self.versions),
        }
        return {"call": "next", "arguments": arguments}


@dataclasses.dataclass
class _Epoch:
    """An epoch that has begun and not ended.

    Args:
        given_up: Whether nobody wants its batches. tf.data says so on any thread, for which another
            one may wait that holds whatever lock: so that is noted, and the epoch ended later.
    """

    given_up: bool = False


class RowsSent(Protocol):
    """How a trainer's engine takes the rows that owners send unasked."""

    def begin(self, tables: Sequence[str]) -> dict[str, int]:
        """Returns the version that each table has once all updates so far are applied."""

    def expect(self, ticket: int, versions: Mapping[str, int], staleness: int) -> None:
        """Says of which versions the rows of a batch will be, or how many updates before."""

    def forget(self, tickets: Sequence[int]) -> None:
        """Forgets the rows of batches."""

    def name(self, ticket: int, batch: str) -> None:
        """Says which batch has a ticket."""

    def note(self, function: str) -> None:
        """Has the log note what was read, at the end of an epoch of a data set."""

    def row_bytes(self, table: str) -> int:
        """Returns what a row takes."""


class Feed:
    """A data set that data nodes read for this trainer. Its epochs come one after another.

    Data nodes take turns. One that dies is waited for, and asked again for what it did not answer.

    Args:
        trainer: Who wants it.
        wanted: What is wanted.
        number: Of the data set, among those of this trainer.
        dial: Connects to the data node of a name.
        book: Of this trainer.
        rows: Of this trainer.
        epochs: Of all data sets of this trainer.
    """

    def __init__(
        self,
        trainer: Trainer,
        wanted: Wanted,
        number: int,
        dial: Dial,
        book: TicketBook,
        rows: RowsSent,
        epochs: OpenEpochs,
    ) -> None:
        self._epochs = epochs
        self._rows = rows
        self._base: dict[str, int] = {}  # versions at the begin of the epoch
        self._count = 0  # batches that were asked for in the epoch
        self._trainer = trainer
        self._wanted = wanted
        self._number = number
        self._dial = dial
        self._book = book
        self._links: list[MessageLink | None] = [None] * len(trainer.data)
        self._epoch = wanted.epoch
        self._answered = [0] * len(trainer.data)  # batches of this epoch, by data node
        self._asked: collections.deque[_Asked] = collections.deque()
        self._size = 0  # bytes of the last batch
        self._declared = Declared({}, {}, 0, 1)
        self._holding = Holding(0)
        self._living: list[int] = []  # data nodes whose epoch has not ended
        self._last = -1  # data node that was asked
        self._under_way: _Epoch | None = None
        self._turns = threading.Lock()  # an iterator that is given up may still be reading ahead

    def describe(self) -> dict[str, Any]:
        """Returns what elements are like.

        Raises:
            TfhybridError: The data set cannot be made.
            PeerDiedError: The first data node is not there, and does not come.
        """
        asked = {"call": "describe", "arguments": {"reading": self._reading(0)}}

        def described() -> dict[str, Any]:
            self._send(0, asked)
            found: dict[str, Any] = _result(self._receive(0))[0]
            return found

        return self._surely(0, described)

    def epoch(self, declared: Declared) -> Iterator[Batch]:
        """Yields the batches of the next epoch, with places where keys were.

        Args:
            declared: What the model looks up.

        Raises:
            TfhybridError: A batch cannot be read or split.
            PeerDiedError: A data node is gone, and does not come back.
            ConfigError: Another epoch has begun before this one has ended.
        """
        with self._epochs.working(), self._turns:
            epoch = self._begin(declared)
        try:
            while (batch := self._turn(epoch)) is not None:
                yield batch
        except GeneratorExit:
            epoch.given_up = True
            raise

    def settle(self) -> None:
        """Receives what data nodes were asked for: then they have given owners all keys.

        While this data set pauses, as of `OpenEpochs`.

        Raises:
            PeerDiedError: A data node is gone, and does not come back.
        """
        if self._under_way is not None and self._under_way.given_up:
            self._end()
        for asked in self._asked:
            self._answer(asked)

    def follow(self) -> None:
        """Has data nodes give keys to the nodes that have the rows now; likewise."""
        for node, link in enumerate(self._links):
            if link is None:
                continue
            try:
                self._send(node, {"call": "follow", "arguments": {"owners": self._owners()}})
                _result(self._receive(node))
            except (_LostError, StoreError) as error:
                _log.warning("%s is connected again: %s", self._trainer.data[node], error)
                self._forget(node)

    def _begin(self, declared: Declared) -> _Epoch:
        if self._under_way is not None:
            self._end()
        self._declared = declared
        nodes, step = len(self._links), self._wanted.step
        self._answered = [len(range(node, step, nodes)) for node in range(nodes)]
        # A lookup waits for the update of the batch before, or for one `staleness` updates older.
        self._holding = Holding(self._wanted.lag + self._wanted.staleness)
        self._count = 0
        self._base = {}
        if self._wanted.join != REQUEST:
            self._base = self._rows.begin(sorted(set(declared.tables.values())))
        for node in range(nodes):
            self._surely(node, functools.partial(self._open, node))
        self._living = list(range(nodes))
        self._last = (step - 1) % nodes
        self._under_way = _Epoch()
        self._epochs.add(self)
        return self._under_way

    def _turn(self, epoch: _Epoch) -> Batch | None:
        """The next batch of an epoch, or none: then it has ended."""
        with self._epochs.working(), self._turns:
            if self._under_way is not epoch:
                raise ConfigError(
                    f"One iterator at a time reads {self._wanted.function} from data nodes. "
                    "Received: another one has begun"
                )
            batch = None
            try:
                batch = self._next()
            finally:
                if batch is None:
                    self._end()
            return batch

    def _next(self) -> Batch | None:
        """The next batch, or none."""
        while self._living:
            while self._may_ask():
                later = (node for node in self._living if node > self._last)
                self._ask(next(later, self._living[0]))
            answer, arrays = _result(self._answer(self._asked[0]))
            asked = self._asked.popleft()
            if "end" in answer:
                self._rows.forget([asked.ticket])
                self._living = [node for node in self._living if node != asked.node]
                continue
            if self._wanted.staleness:
                self._rows.name(asked.ticket, str(answer["batch"]))
            self._book.hand_out(self._holding, asked.ticket, self._held_bytes(answer))
            self._size = answer["key_bytes"] + sum(each.nbytes for each in arrays.values())
            return answer["structure"], self._leaves(asked, answer, arrays)
        return None

    def _end(self) -> None:
        self._under_way = None
        self._epochs.remove(self)
        self._drain()
        self._book.end(self._holding)
        self._epoch += not self._wanted.step
        self._rows.note(self._wanted.function)

    def close(self) -> None:
        """Ends the connections."""
        for node, link in enumerate(self._links):
            if link is not None:
                link.close()
                self._links[node] = None

    def _may_ask(self) -> bool:
        if not self._asked:
            return True
        taken = self._holding.size + len(self._asked) * self._size
        # Rows that lack k updates leave k batches before they are needed.
        ahead = max(self._wanted.ahead, self._wanted.staleness + 1)
        return len(self._asked) < ahead and taken < self._wanted.most_bytes

    def _ask(self, node: int) -> None:
        dropped = self._book.dropped(self._holding)
        ticket = self._book.give()
        versions = self._versions()
        self._rows.forget(dropped)
        if self._base or self._wanted.staleness:
            self._rows.expect(ticket, versions, self._wanted.staleness)
        asked = _Asked(node, ticket, dropped, versions)
        self._asked.append(asked)
        self._count += 1
        self._last = node
        with contextlib.suppress(_LostError):  # who waits for the answer asks again
            self._send(asked.node, asked.message())

    def _versions(self) -> dict[str, int]:
        """The version that each table will have when the next batch is looked up.

        One update for each batch before it, where they are trained. Where that turns out to be
        wrong, the lookup asks the owners.
        """
        before = self._count if self._wanted.trains else 0
        return {table: version + before for table, version in self._base.items()}

    def _leaves(
        self, asked: _Asked, answer: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> list[Leaf]:
        """A batch's tensors, with places as lookups take them."""
        declared = self._declared
        try:
            places = declared.leaves_in(answer["structure"]).values()
            return from_arrays(answer["kinds"], arrays, places, asked.ticket, declared.owners)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self._trainer.data[asked.node]} sent what is no half of a batch: {error}"
            ) from error

    def _held_bytes(self, answer: Mapping[str, Any]) -> int:
        """What owners hold of a batch, and this trainer of its rows."""
        size = int(answer["key_bytes"])
        if self._base:
            size += sum(
                count * self._rows.row_bytes(table) for table, count in answer["keys"].items()
            )
        return size

    def _drain(self) -> None:
        """Takes the answers that nobody waits for: no key comes to an owner behind its drop."""
        while self._asked:
            asked = self._asked.popleft()
            try:
                answer = (asked.answer or self._receive(asked.node))[0].get("result")
            except _LostError:  # owners may hold it
                self._forget(asked.node)
                self._book.hand_out(self._holding, asked.ticket, 0)
                continue
            if isinstance(answer, dict) and "key_bytes" in answer:
                self._book.hand_out(self._holding, asked.ticket, self._held_bytes(answer))
            else:
                self._rows.forget([asked.ticket])

    def _answer(self, asked: _Asked) -> Message:
        """What a data node says to the first of those that it did not answer yet."""
        if asked.answer is None:
            receive = functools.partial(self._receive, asked.node)
            asked.answer = self._surely(asked.node, receive)
            self._answered[asked.node] += "batch" in (asked.answer[0].get("result") or {})
        return asked.answer

    def _surely(self, node: int, does: Callable[[], _Done]) -> _Done:
        """Does something with a data node, again after it has died and is back."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while True:
            try:
                if self._links[node] is None:
                    self._links[node] = self._dialled(node)
                    try:
                        self._go_on(node)
                    except TfhybridError:  # it was not asked again: nobody must wait for it
                        self._forget(node)
                        raise
                return does()
            except _LostError as lost:
                self._forget(node)
                name = self._trainer.data[node]
                if time.monotonic() > deadline:
                    raise PeerDiedError(
                        f"{name} is gone, and did not come back in {_RETURN_SECONDS:.0f} s: {lost}"
                    ) from lost
                _log.warning("%s is waited for: %s", name, lost)
                time.sleep(_RETRY_SECONDS)

    def _dialled(self, node: int) -> MessageLink:
        try:
            return self._dial(self._trainer.data[node])
        except StoreError as error:
            raise _LostError(str(error)) from error

    def _go_on(self, node: int) -> None:
        """Has a data node that is back read again what it did not answer."""
        asked = [each for each in self._asked if each.node == node and each.answer is None]
        if not asked:
            return
        self._open(node)
        for each in asked:
            self._send(node, each.message())

    def _open(self, node: int) -> None:
        arguments = {
            "reading": self._reading(node),
            "session": self._trainer.session,
            "owners": self._owners(),
            "silence": self._trainer.silence,
            "declared": self._declared.as_json(),
            "data_set": self._number,
            "trains": self._wanted.trains,
            "join": self._wanted.join,
            "staleness": self._wanted.staleness,
            "epoch": self._epoch,
            "number": self._answered[node],
        }
        self._send(node, {"call": "open", "arguments": arguments})
        _result(self._receive(node))

    def _owners(self) -> list[Any]:
        return [[name, list(address)] for name, address in self._trainer.owners()]

    def _reading(self, node: int) -> dict[str, Any]:
        wanted, trainer = self._wanted, self._trainer
        return dataclasses.asdict(
            Reading(
                wanted.function,
                dict(wanted.arguments),
                trainer.rank,
                trainer.size,
                node,
                len(trainer.data),
                wanted.share,
                wanted.group_by,
            )
        )

    def _forget(self, node: int) -> None:
        link, self._links[node] = self._links[node], None
        if link is not None:
            link.close()

    def _send(self, node: int, message: Mapping[str, Any]) -> None:
        link = self._links[node]
        if link is None:
            raise _LostError("it was not reached")
        try:
            link.send(message)
        except StoreError as error:
            raise _LostError(str(error)) from error

    def _receive(self, node: int) -> Message:
        link = self._links[node]
        if link is None:
            raise _LostError("it was not reached")
        try:
            return link.receive()
        except StoreError as error:
            raise _LostError(str(error)) from error


class _LostError(Exception):
    """A connection to a data node broke, or could not be made."""


def _result(message: Message) -> tuple[Any, dict[str, np.ndarray]]:
    answer, arrays = message
    if "error" in answer:
        kind = getattr(errors, str(answer["error"]), StoreError)
        raise kind(f"A data node: {answer.get('text')}")
    return answer.get("result"), arrays
