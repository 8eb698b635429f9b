"""Trainer's side of data nodes: requests batches and receives their dense halves."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from tfhybrid._ending import python_ends
from tfhybrid.data_nodes.data_request import DataRequest, Trainer
from tfhybrid.data_nodes.data_streams import (
    DataStream,
    DenseBatch,
    Description,
    OpenedEpoch,
    Reading,
)
from tfhybrid.data_nodes.dense_half import from_arrays
from tfhybrid.data_nodes.elements import Leaf, Structure
from tfhybrid.data_nodes.key_links import PULL
from tfhybrid.data_nodes.open_epochs import OpenEpochs
from tfhybrid.data_nodes.pushed_rows import EngineRows
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.data_nodes.tickets import Holding, TicketBook
from tfhybrid.errors import ConfigError, PeerDiedError, StoreError, TfhybridError
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.messages import LostError
from tfhybrid.rpc.remote_methods import Call, call_to

_log = logging.getLogger("tfhybrid.data_nodes")

_RETURN_SECONDS = 60.0  # time that a lost data node has to come back
_RETRY_SECONDS = 0.2

Dial = Callable[[str], Caller]
Batch = tuple[Structure, list[Leaf]]
_Done = TypeVar("_Done")


@dataclasses.dataclass(frozen=True)
class _Answer:
    """Answer of a data node: a batch, `None` at the end of its epoch, or an error."""

    batch: DenseBatch | None = None
    error: TfhybridError | None = None


@dataclasses.dataclass
class _Request:
    """A request to a data node for a batch, and the answer once it was received."""

    node: int
    ticket: int
    call: Call[DenseBatch | None]
    answer: _Answer | None = None


@dataclasses.dataclass
class _Epoch:
    """An open epoch.

    Args:
        given_up: Whether its iterator was closed. tf.data closes iterators on any thread, for which
            threads with other locks may wait. So closing only sets this flag, and the epoch is
            ended later.
    """

    given_up: bool = False


class TrainerParts(NamedTuple):
    """Parts of a trainer that all its data sets use.

    Attributes:
        dial: Function that connects to a data node, by its name; raises `StoreError` if it cannot.
        book: Tickets of this trainer.
        rows: Receiver of the rows that owners push to this trainer.
        epochs: Registry of all data sets of this trainer that have an open epoch.
    """

    dial: Dial
    book: TicketBook
    rows: EngineRows
    epochs: OpenEpochs


class Feed:
    """A data set that data nodes read for this trainer, one epoch at a time.

    Data nodes take turns. If one is lost, the feed waits up to 60 s until it is back, and repeats
    the requests that it did not answer.

    Any thread may iterate, but only over one epoch at a time; `next` blocks until the batch is
    here. Call `settle` and `follow` only while `OpenEpochs` pauses the data set.

    Args:
        trainer: Description of this trainer.
        request: Description of the data set.
        number: Number of the data set among those of this trainer, from 1.
        parts: Parts that this trainer's data sets share.
    """

    def __init__(
        self, trainer: Trainer, request: DataRequest, number: int, parts: TrainerParts
    ) -> None:
        self._dial, self._book, self._rows, self._epochs = parts
        self._base: dict[str, int] = {}  # version of each table at the start of the epoch
        self._count = 0  # number of batches that were requested in the epoch
        self._trainer = trainer
        self._request = request
        self._number = number
        self._links: list[Caller | None] = [None] * len(trainer.data)
        self._epoch = request.epoch
        self._answered = [0] * len(trainer.data)  # batches received in this epoch, by data node
        self._digests = [""] * len(trainer.data)  # of the last of them
        self._pending: collections.deque[_Request] = collections.deque()
        self._size = 0  # bytes of the last batch
        self._declared = Declared({}, {}, 0, 1)
        self._holding = Holding(0)
        self._living: list[int] = []  # data nodes whose epoch has not ended
        self._last = -1  # data node that got the last request
        self._under_way: _Epoch | None = None
        self._turns = threading.Lock()  # an iterator that is given up may still be reading ahead

    def describe(self) -> Description:
        """Asks the first data node for a description of the elements.

        Call it before the first epoch.

        Returns:
            The description.

        Raises:
            TfhybridError: The data node cannot make the data set.
            PeerDiedError: The data node is lost and did not come back in 60 s.
        """
        call = call_to(DataStream.describe, self._reading(0))
        return self._retried(0, lambda: self._asked(0, call))

    def epoch(self, declared: Declared) -> Iterator[Batch]:
        """Yields the batches of the next epoch, with key handles in place of keys.

        It begins with the first `next`, which ends an epoch in progress. All errors are raised by
        `next`.

        Args:
            declared: Features that the model looks up, and the owners of their rows.

        Raises:
            TfhybridError: A data node cannot read or split a batch, or sent an invalid one; an
                update failed; or the read log cannot be written.
            PeerDiedError: A data node is lost and did not come back in 60 s.
            ConfigError: Another epoch was started before this one ended.
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
        """Receives the batches that were requested, so that owners hold all keys of the data set.

        Also ends an epoch whose iterator was closed. Call it only while this data set is paused by
        `OpenEpochs`.

        Raises:
            PeerDiedError: A data node is lost and did not come back in 60 s.
            TfhybridError: A data node that came back cannot read the data set again, or the read
                log cannot be written.
        """
        if self._under_way is not None and self._under_way.given_up:
            self._end()
        for request in self._pending:
            self._answer(request)

    def follow(self) -> None:
        """Tells data nodes to send keys to the nodes that own the shards now.

        Call it only while this data set is paused by `OpenEpochs`. A data node that cannot be
        reached is connected again with the next request.
        """
        for node, link in enumerate(self._links):
            if link is None:
                continue
            try:
                self._asked(node, call_to(DataStream.follow, self._trainer.owners()))
            except (_LostError, StoreError) as error:
                _log.warning("Will connect to %s again: %s", self._trainer.data[node], error)
                self._forget(node)

    def _begin(self, declared: Declared) -> _Epoch:
        if self._under_way is not None:
            self._end()
        self._declared = declared
        nodes, step = len(self._links), self._request.step
        self._answered = [len(range(node, step, nodes)) for node in range(nodes)]
        self._digests = [""] * nodes
        # A lookup waits for the update of the batch before, or for one `staleness` updates older.
        self._holding = Holding(self._request.lag + self._request.staleness)
        self._count = 0
        self._base = {}
        if self._request.delivery != PULL:
            self._base = self._rows.begin(sorted(set(declared.tables.values())))
        for node in range(nodes):
            self._retried(node, functools.partial(self._open, node))
        self._living = list(range(nodes))
        self._last = (step - 1) % nodes
        self._under_way = _Epoch()
        self._epochs.add(self)
        return self._under_way

    def _turn(self, epoch: _Epoch) -> Batch | None:
        """Returns the next batch of an epoch; `None` ends the epoch."""
        with self._epochs.working(), self._turns:
            if self._under_way is not epoch:
                raise ConfigError(
                    f"One iterator at a time reads {self._request.function} from data nodes. Use "
                    "up or drop an iterator before the next one starts. Received: a second one"
                )
            batch = None
            try:
                batch = self._next()
            finally:
                if batch is None:
                    self._end()
            return batch

    def _next(self) -> Batch | None:
        """Returns the next batch, or `None` after the last one."""
        while self._living:
            while self._may_ask():
                later = (node for node in self._living if node > self._last)
                self._ask(next(later, self._living[0]))
            batch = self._answer(self._pending[0])
            request = self._pending.popleft()
            if batch is None:
                self._rows.forget([request.ticket])
                self._living = [node for node in self._living if node != request.node]
                continue
            if self._request.staleness:
                self._rows.name(request.ticket, batch.batch)
            self._book.hand_out(self._holding, request.ticket, self._held_bytes(batch))
            self._size = batch.key_bytes + sum(each.nbytes for each in batch.arrays.values())
            return batch.structure, self._leaves(request, batch)
        return None

    def _end(self) -> None:
        self._under_way = None
        self._epochs.remove(self)
        self._drain()
        self._book.end(self._holding)
        self._epoch += not self._request.step
        self._rows.note(self._request.function)

    def close(self) -> None:
        """Closes the connections to the data nodes. A later epoch connects again."""
        for node, link in enumerate(self._links):
            if link is not None:
                link.close()
                self._links[node] = None

    def _may_ask(self) -> bool:
        if not self._pending:
            return True
        taken = self._holding.size + len(self._pending) * self._size
        # Rows that may lack k updates are sent k batches before they are needed.
        ahead = max(self._request.ahead, self._request.staleness + 1)
        return len(self._pending) < ahead and taken < self._request.max_bytes

    def _ask(self, node: int) -> None:
        dropped = self._book.dropped(self._holding)
        ticket = self._book.give()
        versions = self._versions()
        self._rows.forget(dropped)
        if self._base or self._request.staleness:
            self._rows.expect(ticket, versions, self._request.staleness)
        call = call_to(DataStream.next, ticket, dropped, versions)
        request = _Request(node, ticket, call)
        self._pending.append(request)
        self._count += 1
        self._last = node
        with contextlib.suppress(_LostError):  # `_answer` sends the request again
            self._send(request.node, request.call)

    def _versions(self) -> dict[str, int]:
        """Returns the version that each table should have when the next batch is looked up.

        If the batches are trained, each batch before it should make one update. If one makes none
        after all, the lookup asks the owners for the rows.
        """
        before = self._count if self._request.trains else 0
        return {table: version + before for table, version in self._base.items()}

    def _leaves(self, request: _Request, batch: DenseBatch) -> list[Leaf]:
        """Returns the tensors of a batch, with key handles that lookups accept."""
        declared = self._declared
        try:
            with_handles = declared.leaves_in(batch.structure).values()
            return from_arrays(
                batch.kinds, batch.arrays, with_handles, request.ticket, declared.owners
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self._trainer.data[request.node]} sent an invalid dense half of a batch: {error}"
            ) from error

    def _held_bytes(self, batch: DenseBatch) -> int:
        """Returns the bytes of a batch's keys on owners, and of its pushed rows on this trainer."""
        size = batch.key_bytes
        if self._base:
            size += sum(count * self._rows.row_bytes(table) for table, count in batch.keys.items())
        return size

    def _drain(self) -> None:
        """Receives the answers to all pending requests, so that no owner gets keys after a drop."""
        while self._pending:
            request = self._pending.popleft()
            try:
                batch = (request.answer or self._received(request)).batch
            except _LostError:  # owners may hold the batch all the same
                self._forget(request.node)
                self._book.hand_out(self._holding, request.ticket, 0)
                continue
            if batch is None:
                self._rows.forget([request.ticket])
            else:
                self._book.hand_out(self._holding, request.ticket, self._held_bytes(batch))

    def _answer(self, request: _Request) -> DenseBatch | None:
        """Returns the answer to a request, which must be the node's oldest one without an answer.

        Raises:
            TfhybridError: The data node has answered with this error.
            PeerDiedError: The data node did not come back in time.
        """
        if request.answer is None:
            request.answer = self._retried(request.node, lambda: self._received(request))
            if request.answer.batch is not None:
                self._answered[request.node] += 1
                self._digests[request.node] = request.answer.batch.digest
        if request.answer.error is not None:
            raise request.answer.error
        return request.answer.batch

    def _received(self, request: _Request) -> _Answer:
        try:
            return _Answer(batch=self._result(request.node, request.call))
        except TfhybridError as error:
            return _Answer(error=error)

    def _retried(self, node: int, does: Callable[[], _Done]) -> _Done:
        """Calls `does`. If the data node is lost, connects again and repeats the call, for 60 s."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while True:
            try:
                if self._links[node] is None:
                    self._links[node] = self._dialled(node)
                    try:
                        self._repeat_requests(node)
                    except TfhybridError:  # its requests were not repeated: nobody may wait for it
                        self._forget(node)
                        raise
                return does()
            except _LostError as lost:
                self._forget(node)
                name = self._trainer.data[node]
                if time.monotonic() > deadline or python_ends():
                    raise PeerDiedError(
                        f"{name} is gone, and did not come back in {_RETURN_SECONDS:.0f} s: {lost}"
                    ) from lost
                _log.warning("Waiting for %s: %s", name, lost)
                time.sleep(_RETRY_SECONDS)

    def _dialled(self, node: int) -> Caller:
        try:
            return self._dial(self._trainer.data[node])
        except StoreError as error:
            raise _LostError(str(error)) from error

    def _repeat_requests(self, node: int) -> None:
        """Sends a data node that is back the requests that it did not answer."""
        requests = [each for each in self._pending if each.node == node and each.answer is None]
        if not requests:
            return
        self._open(node)
        for each in requests:
            self._send(node, each.call)

    def _open(self, node: int) -> None:
        opened = OpenedEpoch(
            self._reading(node),
            self._trainer.session,
            self._trainer.owners(),
            self._trainer.silence,
            self._declared,
            self._number,
            self._request.trains,
            self._request.delivery,
            self._request.staleness,
            self._epoch,
            self._answered[node],
            self._digests[node],
        )
        self._asked(node, call_to(DataStream.open, opened))

    def _reading(self, node: int) -> Reading:
        request, trainer = self._request, self._trainer
        return Reading(
            request.function,
            dict(request.arguments),
            trainer.rank,
            trainer.size,
            node,
            len(trainer.data),
            request.divide_by,
            request.group_by,
        )

    def _forget(self, node: int) -> None:
        link, self._links[node] = self._links[node], None
        if link is not None:
            link.close()

    def _asked(self, node: int, call: Call[_Done]) -> _Done:
        self._send(node, call)
        return self._result(node, call)

    def _send(self, node: int, call: Call[Any]) -> None:
        try:
            self._link(node).start(call)
        except LostError as error:
            raise _LostError(str(error)) from error

    def _result(self, node: int, call: Call[_Done]) -> _Done:
        """Returns the result of the oldest call of a data node that has none yet."""
        link = self._link(node)
        try:
            return link.finish(call)
        except TfhybridError as error:
            if link.is_closed:
                raise _LostError(str(error)) from error
            raise

    def _link(self, node: int) -> Caller:
        link = self._links[node]
        if link is None:
            raise _LostError("there is no connection to it")
        return link


class _LostError(Exception):
    """A data node is lost: its connection broke, or could not be made."""
