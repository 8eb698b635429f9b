"""Batches that data nodes split: a trainer gets key handles, and the owners hold the keys.

A key handle is the number that stands for a key in a split batch: ticket of the batch, owner of the
key, and index among the owner's keys. Trainers look up and update key handles like keys.
"""

from __future__ import annotations

import ctypes
import dataclasses
import socket
from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine

TICKETS = 1 << 24  # `KeyHandle::kTickets`
OWNER_BITS, INDEX_BITS = 12, 26  # of `KeyHandle`
_ROOM = 1024
_NAME_BYTES = 128  # `TFHYBRID_TABLE_NAME_BYTES`


def make_key_handles(
    table: str,
    placement: tuple[int, int],
    owners: tuple[int, int],
    ticket: int,
    keys: Sequence[np.ndarray],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Replaces the keys of a batch by key handles. Needs no engine; any thread may call it.

    Args:
        table: Name of the table.
        placement: Kind of the table's placement, and the host of all rows if there is one.
        owners: Number of the first host that owns rows, and number of all hosts.
        ticket: Ticket of the batch, 0 to `TICKETS` - 1.
        keys: Keys of each feature of the table, int64 of any shape.

    Returns:
        The key handles, in the shapes of `keys`; and the distinct keys of each owner, in the order
        of the indices in the key handles.

    Raises:
        ConfigError: A ticket or an owner is out of range, or an owner has more distinct keys than
            the index of a key handle can count.
    """
    keys = [np.ascontiguousarray(each, np.int64) for each in keys]
    handles = [np.empty(each.shape, np.int64) for each in keys]
    distinct = np.empty(sum(each.size for each in keys), np.int64)
    first, hosts = owners
    owned = np.zeros(hosts - first, np.int64)
    native.call(
        "key_handles_make",
        table.encode(),
        ctypes.c_uint32(placement[0]),
        ctypes.c_int64(placement[1]),
        ctypes.c_int64(first),
        ctypes.c_int64(hosts),
        ctypes.c_int64(ticket),
        ctypes.c_int(len(keys)),
        (ctypes.c_int64 * len(keys))(*(each.size for each in keys)),
        native.pointers(keys),
        native.pointers(handles),
        ctypes.c_void_p(distinct.ctypes.data),
        ctypes.c_void_p(owned.ctypes.data),
    )
    ends = np.cumsum(owned)
    return handles, np.split(distinct[: ends[-1]], ends[:-1])


def key_handle_of(ticket: int, owner: int, index: int) -> int:
    """Returns the key handle of a key, as `KeyHandle::Word` does.

    Args:
        ticket: Ticket of the batch.
        owner: Number of the host that owns the key.
        index: Index of the key among those keys of one table in the batch that this host owns.

    Returns:
        The three numbers, unchecked, in the bits of one integer. The table is not a part of it:
        a key handle is only valid together with its table.
    """
    return 1 << 62 | ticket << (OWNER_BITS + INDEX_BITS) | owner << INDEX_BITS | index


def use_key_handles(engine: Engine) -> None:
    """Makes a trainer use key handles, not keys, in lookups and updates from now on.

    Args:
        engine: Engine of the trainer.

    Raises:
        StoreError: No store is open.
    """
    engine.call("key_handles_use")


def lookup(
    engine: Engine,
    tables: Mapping[str, int],
    handles: Sequence[np.ndarray],
    *,
    outside: bool = False,
) -> list[np.ndarray]:
    """Looks up key handles of several tables at once, as a lookup of features does.

    Waits for the updates in which this rank has taken part, except those that the rows may lack.

    Args:
        engine: Engine of a trainer.
        tables: Dim of each table, by its name.
        handles: Key handles of each table, int64 `[n]`.
        outside: Whether this is outside of training, as in `Engine.lookup`. Default: no.

    Returns:
        Embeddings of each table, float32 `[n, dim]`.

    Raises:
        ConfigError: A number is not a key handle.
        StoreError: A table is not open or is not sharded, the owners do not hold the batch, an
            owner died, or an earlier update failed.
    """
    handles = [np.ascontiguousarray(each, np.int64) for each in handles]
    rows = [
        np.empty((len(of_table), dim), np.float32)
        for of_table, dim in zip(handles, tables.values(), strict=True)
    ]
    engine.call(
        "key_handles_lookup",
        ctypes.c_int(outside),
        ctypes.c_int(len(tables)),
        (ctypes.c_char_p * len(tables))(*(name.encode() for name in tables)),
        (ctypes.c_int64 * len(tables))(*map(len, handles)),
        native.pointers(handles),
        native.pointers(rows),
    )
    return rows


def looked_up(engine: Engine) -> list[int]:
    """Returns the tickets of the batches that a trainer has looked up since the last call.

    Raises:
        StoreError: No store is open.
    """
    looked_up_tickets: list[int] = []
    tickets, count = np.empty(_ROOM, np.int64), ctypes.c_int64(_ROOM)
    while count.value == _ROOM:
        room = ctypes.c_int64(_ROOM)
        engine.call(
            "key_handles_looked_up", room, ctypes.c_void_p(tickets.ctypes.data), ctypes.byref(count)
        )
        looked_up_tickets += tickets[: count.value].tolist()
    return looked_up_tickets


@dataclasses.dataclass(frozen=True)
class RowRead:
    """Version of the rows of one batch that a lookup received from an owner.

    Args:
        ticket: Ticket of the batch.
        table: Name of the table.
        owner: Host that owns the rows.
        complete: Version with every update before the batch. The batch's own update leads to the
            next version.
        version: Version of the received rows.
    """

    ticket: int
    table: str
    owner: int
    complete: int
    version: int

    @property
    def missing(self) -> int:
        """Number of updates that the rows lacked."""
        return max(self.complete - self.version, 0)


def reads(engine: Engine) -> list[RowRead]:
    """Returns what a trainer has read since the last call, for batches with a staleness.

    The staleness of a batch is the number of updates that its rows may miss.

    Args:
        engine: Engine of the trainer.

    Returns:
        One entry per batch, table and owner, oldest first.

    Raises:
        StoreError: No store is open.
    """
    row_reads: list[RowRead] = []
    names = np.empty(_ROOM, f"S{_NAME_BYTES}")
    numbers, count = np.empty((_ROOM, 4), np.int64), ctypes.c_int64(_ROOM)
    while count.value == _ROOM:
        engine.call(
            "key_handles_reads",
            ctypes.c_int64(_ROOM),
            ctypes.c_void_p(names.ctypes.data),
            ctypes.c_void_p(numbers.ctypes.data),
            ctypes.byref(count),
        )
        for name, of_read in zip(names[: count.value], numbers.tolist(), strict=False):
            ticket, owner, complete, version = of_read
            row_reads.append(RowRead(ticket, name.decode(), owner, complete, version))
    return row_reads


@dataclasses.dataclass(frozen=True)
class SplitBatch:
    """A batch whose keys an embedding node holds.

    Args:
        ticket: Ticket of the batch.
        name: Id and digest of the batch.
        rank: Rank of the trainer that gets the batch.
        trains: Whether an update of the batch may follow.
        staleness: Number of updates that its rows may lack. Default 0.
    """

    ticket: int
    name: tuple[str, str]
    rank: int
    trains: bool
    staleness: int = 0


def put(engine: Engine, batch: SplitBatch, keys: Mapping[str, np.ndarray]) -> None:
    """Gives an embedding node its keys of a batch, which it holds until `drop`.

    Args:
        engine: Engine of the embedding node.
        batch: Description of the batch.
        keys: Keys of each table, int64 `[n]`, in the order of the indices in the key handles.

    Raises:
        NameTakenError: The ticket belongs to another batch, or the batch had another digest before.
        ConfigError: The ticket is out of range.
        StoreError: No store is open.
    """
    of_tables = [np.ascontiguousarray(each, np.int64) for each in keys.values()]
    engine.call(
        "batch_put",
        ctypes.c_int64(batch.ticket),
        batch.name[0].encode(),
        batch.name[1].encode(),
        ctypes.c_int64(batch.rank),
        ctypes.c_int(batch.trains),
        ctypes.c_uint64(batch.staleness),
        ctypes.c_int(len(keys)),
        (ctypes.c_char_p * len(keys))(*(table.encode() for table in keys)),
        (ctypes.c_int64 * len(keys))(*map(len, of_tables)),
        native.pointers(of_tables),
    )


def drop(engine: Engine, tickets: Sequence[int]) -> None:
    """Makes an embedding node forget batches. Ignores tickets of batches that it does not hold.

    Args:
        engine: Engine of the embedding node.
        tickets: Tickets of the batches.

    Raises:
        StoreError: No store is open.
    """
    numbers = np.asarray(tickets, np.int64)
    engine.call("batch_drop", ctypes.c_int64(len(numbers)), ctypes.c_void_p(numbers.ctypes.data))


def held(engine: Engine) -> tuple[int, int]:
    """Returns the number of batches that an embedding node holds, and the bytes of their keys.

    Args:
        engine: Engine of the embedding node.

    Raises:
        StoreError: No store is open.
    """
    batches, size = ctypes.c_int64(), ctypes.c_int64()
    engine.call("batches_held", ctypes.byref(batches), ctypes.byref(size))
    return batches.value, size.value


def copied(engine: Engine) -> np.ndarray:
    """Returns all batches that an embedding node holds, encoded as int64 `[words]`.

    Args:
        engine: Engine of the embedding node. `restore` on another node decodes the words.

    Raises:
        StoreError: No store is open.
    """
    words, size = np.empty(0, np.int64), ctypes.c_int64(-1)
    while size.value != len(words):
        words = np.empty(max(size.value, 0), np.int64)
        room = ctypes.c_int64(len(words))
        engine.call("batches_copy", room, ctypes.c_void_p(words.ctypes.data), ctypes.byref(size))
    return words


def restore(engine: Engine, words: np.ndarray) -> None:
    """Gives an embedding node the batches of another one, whose rows it has received.

    Args:
        engine: Engine of the embedding node.
        words: Result of `copied` on the other node.

    Raises:
        TfhybridError: The words do not describe batches.
    """
    words = np.ascontiguousarray(words, np.int64)
    engine.call("batches_put", ctypes.c_int64(len(words)), ctypes.c_void_p(words.ctypes.data))


def send_rows(engine: Engine, rank: int, link: socket.socket, peer: str) -> None:
    """Gives an embedding node a connection over which it sends rows to a trainer.

    Args:
        engine: Engine of the embedding node.
        rank: Rank of the trainer.
        link: Connected stream socket, which the engine owns from now on, even if this call fails.
        peer: Name of the trainer, for messages.

    Raises:
        StoreError: No store is open.
    """
    engine.call("rows_send", ctypes.c_int64(rank), ctypes.c_int(link.detach()), peer.encode())


def receive_rows(engine: Engine, owner: int, link: socket.socket, peer: str) -> None:
    """Gives a trainer a connection over which it receives the rows of an owner.

    Args:
        engine: Engine of the trainer.
        owner: Host that sends its rows.
        link: Connected stream socket, which the engine owns from now on, even if this call fails.
        peer: Name of the owner, for messages.

    Raises:
        ConfigError: There is no such host.
        StoreError: No store is open.
    """
    engine.call("rows_receive", ctypes.c_int64(owner), ctypes.c_int(link.detach()), peer.encode())


def send(engine: Engine, rank: int, ticket: int, versions: Mapping[str, int]) -> None:
    """Makes an embedding node send the rows of a batch to a trainer; does not wait.

    The node waits for updates first: it sends a table's rows when the table misses at most
    `staleness` of the updates up to the version in `versions`; `put` has set the `staleness` of
    the batch. Any thread of the embedding node may call it.

    Args:
        engine: Engine of the embedding node.
        rank: Rank of the trainer.
        ticket: Ticket of the batch.
        versions: Version of each table after all updates that come before the batch, by name.

    Raises:
        StoreError: No store is open.
    """
    engine.call("batch_send", ctypes.c_int64(rank), ctypes.c_int64(ticket), *_named(versions))


def expect(engine: Engine, ticket: int, versions: Mapping[str, int], staleness: int = 0) -> None:
    """Tells a trainer that all owners will send the rows of a batch.

    Args:
        engine: Engine of the trainer.
        ticket: Ticket of the batch.
        versions: Per table whose rows are sent, the version with every update before the batch.
        staleness: Number of these updates that rows may lack, those of other tables included.
            Default 0.

    Raises:
        StoreError: No store is open.
    """
    engine.call(
        "batch_expect", ctypes.c_int64(ticket), ctypes.c_uint64(staleness), *_named(versions)
    )


def ask_for_all(engine: Engine) -> None:
    """Makes a trainer request the rows that `expect` announced, because rows have new owners.

    Args:
        engine: Engine of the trainer.

    Raises:
        StoreError: No store is open.
    """
    engine.call("batches_ask")


def forget(engine: Engine, tickets: Sequence[int]) -> None:
    """Makes a trainer free the rows of batches that it has received and needs no longer.

    Args:
        engine: Engine of the trainer.
        tickets: Tickets of the batches.

    Raises:
        StoreError: No store is open.
    """
    numbers = np.asarray(tickets, np.int64)
    engine.call("batch_forget", ctypes.c_int64(len(numbers)), ctypes.c_void_p(numbers.ctypes.data))


def _named(versions: Mapping[str, int]) -> tuple[object, ...]:
    count = len(versions)
    return (
        ctypes.c_int(count),
        (ctypes.c_char_p * count)(*(table.encode() for table in versions)),
        (ctypes.c_uint64 * count)(*versions.values()),
    )
