"""Batches that data nodes split: keys become places, and owners hold the keys."""

from __future__ import annotations

import ctypes
import dataclasses
import socket
from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine

TICKETS = 1 << 24  # `Place::kTickets`
OWNER_BITS, INDEX_BITS = 12, 26  # of `Place`
_ROOM = 1024
_NAME_BYTES = 128  # `TFHYBRID_TABLE_NAME_BYTES`


def number_places(
    table: str,
    placement: tuple[int, int],
    owners: tuple[int, int],
    ticket: int,
    keys: Sequence[np.ndarray],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Puts places in the place of keys; needs no engine.

    Args:
        table: That the keys are of.
        placement: Of the table, as of `Engine.open_table`.
        owners: The first host that owns rows, and the number of all hosts.
        ticket: Of the batch, 0 to `TICKETS` - 1.
        keys: Of each feature of the table, int64 of any shape.

    Returns:
        The places, of the same shapes, and the distinct keys of each owner, which places count.

    Raises:
        ConfigError: The batch has more keys than places can name.
    """
    keys = [np.ascontiguousarray(each, np.int64) for each in keys]
    places = [np.empty(each.shape, np.int64) for each in keys]
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
        native.pointers(places),
        ctypes.c_void_p(distinct.ctypes.data),
        ctypes.c_void_p(owned.ctypes.data),
    )
    ends = np.cumsum(owned)
    return places, np.split(distinct[: ends[-1]], ends[:-1])


def place_of(ticket: int, owner: int, index: int) -> int:
    """Returns the place of a key, `Place::Word`.

    Args:
        ticket: Of the batch.
        owner: Host that owns the key.
        index: Among the keys of that owner.
    """
    return 1 << 62 | ticket << (OWNER_BITS + INDEX_BITS) | owner << INDEX_BITS | index


def use_places(engine: Engine) -> None:
    """Has a trainer look features up, and update tables, by places from now on."""
    engine.call("key_handles_use")


def lookup(
    engine: Engine, tables: Mapping[str, int], places: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Looks up places of several tables at once, as a lookup of features does.

    Args:
        engine: Of a trainer.
        tables: Name and dim of each.
        places: int64 `[n]` of each table.

    Returns:
        Embeddings, float32 `[n, dim]`, of each table.

    Raises:
        TfhybridError: What is no place, or of a batch that the owners do not hold.
    """
    places = [np.ascontiguousarray(each, np.int64) for each in places]
    rows = [
        np.empty((len(some), dim), np.float32)
        for some, dim in zip(places, tables.values(), strict=True)
    ]
    engine.call(
        "key_handles_lookup",
        ctypes.c_int(len(tables)),
        (ctypes.c_char_p * len(tables))(*(name.encode() for name in tables)),
        (ctypes.c_int64 * len(tables))(*map(len, places)),
        native.pointers(places),
        native.pointers(rows),
    )
    return rows


def looked_up(engine: Engine) -> list[int]:
    """Returns tickets of the batches that a trainer looked up since this was last called."""
    found: list[int] = []
    tickets, count = np.empty(_ROOM, np.int64), ctypes.c_int64(_ROOM)
    while count.value == _ROOM:
        room = ctypes.c_int64(_ROOM)
        engine.call(
            "key_handles_looked_up", room, ctypes.c_void_p(tickets.ctypes.data), ctypes.byref(count)
        )
        found += tickets[: count.value].tolist()
    return found


@dataclasses.dataclass(frozen=True)
class RowRead:
    """The version of the rows of a batch that a lookup took from an owner.

    Args:
        ticket: Of the batch.
        table: Whose rows.
        owner: Host that owns them.
        wanted: The version with every update before the batch; the batch's own leads to the next.
        version: That the rows had.
    """

    ticket: int
    table: str
    owner: int
    wanted: int
    version: int

    @property
    def missing(self) -> int:
        """Updates that the rows lacked."""
        return max(self.wanted - self.version, 0)


def reads(engine: Engine) -> list[RowRead]:
    """Returns what a trainer has read of batches with a staleness since this was last called."""
    found: list[RowRead] = []
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
            ticket, owner, wanted, version = of_read
            found.append(RowRead(ticket, name.decode(), owner, wanted, version))
    return found


def put(
    engine: Engine,
    ticket: int,
    name: tuple[str, str],
    rank: int,
    keys: Mapping[str, np.ndarray],
    *,
    trains: bool,
    staleness: int = 0,
) -> None:
    """Gives an embedding node its keys of a batch, which it holds until they are dropped.

    Args:
        engine: Of the embedding node.
        ticket: Of the batch.
        name: Its id and its digest.
        rank: Of the trainer that has the batch.
        keys: By table, in the order that places count.
        trains: Whether there may be an update of it.
        staleness: How many updates its rows may lack.

    Raises:
        NameTakenError: The ticket is another batch's, or the batch had another digest.
    """
    of_tables = [np.ascontiguousarray(each, np.int64) for each in keys.values()]
    engine.call(
        "batch_put",
        ctypes.c_int64(ticket),
        name[0].encode(),
        name[1].encode(),
        ctypes.c_int64(rank),
        ctypes.c_int(trains),
        ctypes.c_uint64(staleness),
        ctypes.c_int(len(keys)),
        (ctypes.c_char_p * len(keys))(*(table.encode() for table in keys)),
        (ctypes.c_int64 * len(keys))(*map(len, of_tables)),
        native.pointers(of_tables),
    )


def drop(engine: Engine, tickets: Sequence[int]) -> None:
    """Has an embedding node forget batches; nothing where it does not hold them."""
    some = np.asarray(tickets, np.int64)
    engine.call("batch_drop", ctypes.c_int64(len(some)), ctypes.c_void_p(some.ctypes.data))


def held(engine: Engine) -> tuple[int, int]:
    """Returns how many batches an embedding node holds, and the bytes of their keys."""
    batches, size = ctypes.c_int64(), ctypes.c_int64()
    engine.call("batches_held", ctypes.byref(batches), ctypes.byref(size))
    return batches.value, size.value


def copied(engine: Engine) -> np.ndarray:
    """Returns all batches that an embedding node holds, int64, for `restore`."""
    words, size = np.empty(0, np.int64), ctypes.c_int64(-1)
    while size.value != len(words):
        words = np.empty(max(size.value, 0), np.int64)
        room = ctypes.c_int64(len(words))
        engine.call("batches_copy", room, ctypes.c_void_p(words.ctypes.data), ctypes.byref(size))
    return words


def restore(engine: Engine, words: np.ndarray) -> None:
    """Has an embedding node hold the batches of another one, whose rows it has.

    Args:
        engine: Of the embedding node.
        words: As of `copied`.

    Raises:
        TfhybridError: They are no batches.
    """
    some = np.ascontiguousarray(words, np.int64)
    engine.call("batches_put", ctypes.c_int64(len(some)), ctypes.c_void_p(some.ctypes.data))


def send_rows(engine: Engine, rank: int, link: socket.socket, peer: str) -> None:
    """Has an embedding node send rows to a trainer over a connection, which it takes over."""
    engine.call("rows_send", ctypes.c_int64(rank), ctypes.c_int(link.detach()), peer.encode())


def receive_rows(engine: Engine, owner: int, link: socket.socket, peer: str) -> None:
    """Has a trainer receive the rows that an owner sends over a connection, which it takes over."""
    engine.call("rows_receive", ctypes.c_int64(owner), ctypes.c_int(link.detach()), peer.encode())


def send(engine: Engine, rank: int, ticket: int, versions: Mapping[str, int]) -> None:
    """Has an embedding node send the rows of a batch to a trainer.

    Args:
        engine: Of the embedding node.
        rank: Of the trainer.
        ticket: Of the batch.
        versions: Of each table, with every update before the batch. Rows go out once no more
            updates are missing than the batch allows.
    """
    engine.call("batch_send", ctypes.c_int64(rank), ctypes.c_int64(ticket), *_named(versions))


def expect(engine: Engine, ticket: int, versions: Mapping[str, int], staleness: int = 0) -> None:
    """Tells a trainer that all owners will send the rows of a batch.

    Args:
        engine: Of the trainer.
        ticket: Of the batch.
        versions: Of each table whose rows are sent, with every update before the batch.
        staleness: How many of these updates rows may lack, also those of other tables.
    """
    engine.call(
        "batch_expect", ctypes.c_int64(ticket), ctypes.c_uint64(staleness), *_named(versions)
    )


def ask_for_all(engine: Engine) -> None:
    """Has a trainer ask for the rows of all batches of which it was told that owners send them."""
    engine.call("batches_ask")


def forget(engine: Engine, tickets: Sequence[int]) -> None:
    """Has a trainer forget the rows of batches that were sent."""
    some = np.asarray(tickets, np.int64)
    engine.call("batch_forget", ctypes.c_int64(len(some)), ctypes.c_void_p(some.ctypes.data))


def _named(versions: Mapping[str, int]) -> tuple[object, ...]:
    count = len(versions)
    return (
        ctypes.c_int(count),
        (ctypes.c_char_p * count)(*(table.encode() for table in versions)),
        (ctypes.c_uint64 * count)(*versions.values()),
    )
