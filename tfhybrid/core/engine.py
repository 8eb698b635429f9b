"""Engine of the core: this process's view of a host's store, without TensorFlow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator, Sequence

import numpy as np

from tfhybrid._remote import Int64Array, remote
from tfhybrid.core import native
from tfhybrid.core.meetings import Meeting, MeetingProgress
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.update import Update, UpdateChoices
from tfhybrid.errors import ConfigError

# How long a rank waits for its leader to create a table; the leader may load data first.
_OPEN_TIMEOUT_MS = 120_000


class Engine:
    """A host's store, its tables and their updates; a process may have several engines.

    An engine has one store at a time, from `open_store` or `recover_store` until `close_store`.
    Thread-safe, except that tables must not be loaded during a training step. Methods that use the
    store raise `StoreError` if none is open, if it lacks the table, or if a process that they wait
    for has died (`PeerDiedError`).

    Args:
        hosts: Host of each rank of the job; the ranks of a host are consecutive.
        host: Number of this host.
        nodes: Number of embedding nodes. They are numbered as hosts after those of ranks; if there
            are any, they own the sharded tables.

    Attributes:
        number: Number of the engine in the C interface and in TensorFlow's ops; never reused.
        handle: The number as a C argument.
        meetings: Meetings that this rank may begin, by signature.

    Raises:
        ConfigError: This host is neither in `hosts` nor an embedding node.
    """

    takes_announcements = True  # whether keys can be announced to the owners of rows

    def __init__(self, hosts: Sequence[int] = (0,), host: int = 0, nodes: int = 0) -> None:
        self.hosts = tuple(hosts)
        self.host = host
        self.nodes = nodes
        number = ctypes.c_int64()
        every = (ctypes.c_int64 * len(self.hosts))(*self.hosts)
        counts = ctypes.c_int(len(self.hosts)), ctypes.c_int64(nodes), ctypes.c_int64(host)
        native.call("engine_reserve", every, *counts, ctypes.byref(number))
        self.handle = number
        self.number = number.value
        self.meetings: dict[int, Meeting] = {}

    @property
    def other_owners(self) -> list[int]:
        """Numbers of the other owners of sharded tables: hosts, or embedding nodes behind them."""
        ranked = max(self.hosts) + 1
        if self.nodes:
            return [host for host in range(ranked, ranked + self.nodes) if host != self.host]
        return [host for host in range(ranked) if host != self.host]

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function of the C interface with this engine, and raises an error if it fails.

        Args:
            function: Name of the function without the prefix `tfhybrid_`.
            *arguments: ctypes values, `bytes` or `None`.

        Raises:
            TfhybridError: The call failed. The subclass matches the status.
        """
        native.call(function, self.handle, *arguments)

    def open_store(
        self, directory: str, job: str, local_rank: int, description: str, token: int
    ) -> str:
        """Opens the store: the leader creates it, the other ranks attach to it.

        Args:
            directory: Directory of the stores, in shared memory.
            job: Name of the job.
            local_rank: Local rank of this process; 0 is the leader.
            description: Description of this process, for messages of other ranks.
            token: Token of the store; other ranks attach only to a store with this token.

        Returns:
            The remains of dead jobs that were removed, one line each.

        Raises:
            TfhybridError: The store cannot be created or does not exist, or the engine already has
                a store.
        """
        names = directory.encode(), job.encode()
        rank = ctypes.c_int(local_rank), description.encode(), ctypes.c_uint64(token)
        return native.text("store_open", self.handle, *names, *rank, again=False)

    def recover_store(self, directory: str, job: str, description: str) -> int:
        """Recovers the store that a dead job left on this host, as its leader.

        Call it instead of `open_store`. The other ranks then open the store with its token.

        Args:
            directory: Directory of the stores, in shared memory.
            job: Name of the job.
            description: Description of this process, for messages of other ranks.

        Returns:
            Token of the store.

        Raises:
            TfhybridError: There is no such store, or it cannot be recovered.
        """
        token = ctypes.c_uint64()
        texts = directory.encode(), job.encode(), description.encode()
        self.call("store_recover", *texts, ctypes.byref(token))
        return token.value

    def close_store(self, *, leave: bool = False) -> None:
        """Closes the store, if one is open. The last process of the job to do so removes it.

        Args:
            leave: Whether the store stays behind, for a restart of the job from memory.
        """
        native.close_store(self.number, leave)

    @remote
    def store_versions(self) -> dict[str, int]:
        """Returns the versions of the recovered store's tables, by the name of a table's file."""
        return self._by_file("store_versions")

    def store_digests(self) -> dict[str, int]:
        """Returns each table's digest in the recovered store, by its file; 0 for sharded tables."""
        return self._by_file("store_digests")

    @remote
    def last_updates(self) -> np.ndarray:
        """Returns the last updates in a recovered store, encoded as int64 `[words]`.

        `roll_forward` applies them on hosts that lack them.
        """
        return native.words(np.int64, "last_updates", self.handle)

    @remote
    def roll_forward(self, updates: Int64Array) -> None:
        """Applies those updates that the tables of this host's recovered store lack.

        Args:
            updates: `last_updates` of another host, int64 `[words]`.

        Raises:
            TfhybridError: The updates cannot be applied to these tables.
        """
        self.call("roll_forward", native.pointer(updates), ctypes.c_int64(len(updates)))

    @remote
    def forget_updates(self) -> None:
        """Ends a recovery on a leader: removes the dead job's messages; tables keep its updates."""
        self.call("forget_updates")

    def rank_state(self, local_rank: int) -> tuple[native.RankState, str]:
        """Returns the state of a rank, and the description of itself that the rank gave.

        Args:
            local_rank: Number of the rank on this host.
        """
        rank, state = ctypes.c_int(local_rank), ctypes.c_int()
        description = native.text("rank_state", self.handle, rank, ctypes.byref(state))
        return native.RankState(state.value), description

    def standing(self) -> MeetingProgress:
        """Returns how many meetings (such as steps, where all ranks wait) this rank has begun."""
        standing = MeetingProgress()
        self.call("meeting_progress_get", ctypes.byref(standing))
        return standing

    def awaited(self) -> str:
        """Returns what this process waits for outside of meetings, or "" where nothing says so.

        An example is "trainer 1 (host 1) to send its gradients of update 5 of table 'item'".
        """
        return native.text("meeting_awaited", self.handle)

    @contextlib.contextmanager
    def meeting(self, meeting: Meeting) -> Iterator[None]:
        """Records that this rank is in a meeting while the block runs.

        Args:
            meeting: Description of the meeting, for messages about ranks that wait for each other.
        """
        self.meetings[meeting.signature] = meeting
        number = ctypes.c_uint64()
        names = ctypes.c_uint64(meeting.signature), ctypes.c_uint64(meeting.series)
        self.call("meeting_begin", *names, ctypes.byref(number))
        try:
            yield
        finally:
            self.call("meeting_end", number)

    def open_table(self, table: OpenedTable) -> None:
        """Opens a table in the engine's store; the leader creates it, the others wait for it.

        Args:
            table: Settings of the table.

        Raises:
            ConfigError: The name is not valid, or the table is open with another configuration.
            TfhybridError: The leader did not create the table within two minutes.
        """
        config = native.TableConfigStruct(
            _encoded(table.name),
            table.dim,
            *table.initializer,
            table.seed,
            native.RowPolicyStruct(**table.policy),
            *table.placement,
            os.fsencode(table.files[0]),
            table.files[1],
        )
        self.call("table_open", ctypes.byref(config), ctypes.c_int(_OPEN_TIMEOUT_MS))

    def connect_owner(
        self, host: int, purpose: native.LinkPurpose, link: socket.socket, peer: str
    ) -> None:
        """Gives the engine a connection to the leader of another host.

        Args:
            host: Number of the other host.
            purpose: Use of the connection.
            link: Connected stream socket. The engine owns it from now on, even if this call fails.
            peer: Name of the leader, for messages.

        Raises:
            TfhybridError: There is no such host, or no store is open.
        """
        self._hand_over("owners_connect", host, purpose, link, peer)

    def name_owner(self, host: int, name: str) -> None:
        """Names the leader of another host in errors, before there is a connection to it.

        Args:
            host: Number of the other host.
            name: Name of the leader.

        Raises:
            TfhybridError: There is no such host, or no store is open.
        """
        self.call("owners_name", ctypes.c_int64(host), name.encode())

    def serve_owner(
        self, host: int, purpose: native.LinkPurpose, link: socket.socket, peer: str
    ) -> None:
        """Lets the engine answer a rank of another host on a connection.

        Args:
            host: Number of the other host.
            purpose: Use of the connection.
            link: Connected stream socket. The engine owns it from now on, even if this call fails.
            peer: Name of the rank, for messages.

        Raises:
            TfhybridError: There is no such host, or no store is open.
        """
        self._hand_over("owners_serve", host, purpose, link, peer)

    def end_reads(self) -> None:
        """Tells the other hosts that this rank reads no more of their rows."""
        self.call("owners_end_reads")

    @remote
    def readers(self) -> int:
        """Returns the number of ranks of other hosts that may still read this host's rows."""
        count = ctypes.c_int64()
        self.call("owners_readers", ctypes.byref(count))
        return count.value

    def _hand_over(
        self, function: str, host: int, purpose: native.LinkPurpose, link: socket.socket, peer: str
    ) -> None:
        numbers = ctypes.c_int64(host), ctypes.c_int(purpose), ctypes.c_int(link.detach())
        self.call(function, *numbers, peer.encode())

    def owned(self, name: str, keys: np.ndarray) -> np.ndarray:
        """Returns for each key whether this host owns it: bool `[n]`.

        Args:
            name: Name of the table.
            keys: int64 `[n]`.

        Raises:
            StoreError: No store is open.
        """
        owned = np.empty(len(keys), np.uint8)
        keys = np.ascontiguousarray(keys, np.int64)
        self.call(
            "table_owned",
            name.encode(),
            ctypes.c_int64(len(keys)),
            native.pointer(keys),
            native.pointer(owned),
        )
        return owned.astype(bool)

    def lookup(self, name: str, dim: int, keys: np.ndarray, outside: bool = False) -> np.ndarray:
        """Looks up embeddings of a table, whichever hosts own the rows.

        Waits until the table has all updates in which this rank has taken part.

        Args:
            name: Name of the table.
            dim: Length of its embeddings.
            keys: int64, any shape.
            outside: Whether this is outside of training: a key without a row then reads what
                `table_set_unseen` says. Default: no, it reads its initial value.

        Returns:
            float32, `keys.shape + (dim,)`.

        Raises:
            StoreError: The table is not open, an update failed, or an owner of rows has died.
        """
        keys = np.asarray(keys, np.int64, order="C")
        out = np.empty((*keys.shape, dim), np.float32)
        self.call(
            "table_lookup_outside" if outside else "table_lookup",
            name.encode(),
            ctypes.c_int64(keys.size),
            native.pointer(keys),
            native.pointer(out),
        )
        return out

    def set_optimizer(self, name: str, **settings: float) -> None:
        """Sets a table's optimizer. Only the leader may call it.

        Args:
            name: Name of the table.
            **settings: Fields of `native.OptimizerConfigStruct`; omitted ones are 0.

        Raises:
            TfhybridError: A setting is invalid, the table has another optimizer, its state has no
                space, or this is not the leader.
        """
        config = native.OptimizerConfigStruct(**settings)
        self.call("table_set_optimizer", name.encode(), ctypes.byref(config))

    @remote
    def forget_optimizer(self, name: str) -> None:
        """Closes a table's updates, so that the table can get another optimizer.

        Every rank must call it. The leader also drops the table's optimizer and its state, once the
        posted updates are applied. It raises `StoreError` if the table is in files and has rows.
        """
        self.call("table_forget_optimizer", name.encode())

    @remote
    def digest(self, name: str) -> int:
        """Returns a hash for comparing a table's replicas on two hosts, bit for bit.

        On a leader it covers keys, embeddings and optimizer state; elsewhere keys and embeddings.

        Raises:
            StoreError: The table is not open, or it is damaged (`CorruptFileError`).
        """
        value = ctypes.c_uint64()
        self.call("table_digest", name.encode(), ctypes.byref(value))
        return value.value

    def table_stats(self, name: str) -> native.TableStatsStruct:
        """Returns counts of a table on this host; `native.STATS` lists their names."""
        struct = native.TableStatsStruct()
        self.call("table_stats_get", name.encode(), ctypes.byref(struct))
        return struct

    @remote
    def count_nan(self, name: str) -> int:
        """Returns the number of a table's embeddings on this host with a NaN; reads all of them."""
        rows = ctypes.c_int64()
        self.call("table_count_nan", name.encode(), ctypes.byref(rows))
        return rows.value

    @remote
    def set_version(self, name: str, version: int, optimizer_start: int) -> None:
        """Sets the version of a table after loading; every rank must call it.

        The leader sets the version, the other ranks wait for it. To lower a version, the ranks need
        a barrier between the leader's call and the others'.

        Args:
            name: Name of the table.
            version: Number of updates that the loaded rows contain.
            optimizer_start: Version at which the table's optimizer began.
        """
        numbers = ctypes.c_uint64(version), ctypes.c_uint64(optimizer_start)
        self.call("table_set_version", name.encode(), *numbers)

    def set_unseen(self, name: str, unseen: str) -> None:
        """Sets what keys without a row of a table read outside of training, in this process.

        Args:
            name: Name of the table.
            unseen: `"zeros"`, or `"initial"` for their initial values.
        """
        self.call("table_set_unseen", name.encode(), ctypes.c_int(unseen == "zeros"))

    def wait(self, table: str) -> None:
        """Waits until a table has all updates in which this rank has taken part.

        Args:
            table: Name of the table.

        Raises:
            TfhybridError: One of the updates failed; the message has the reason.
        """
        self.call("table_wait", table.encode())

    def read(
        self,
        tables: dict[str, int],
        keys: Sequence[np.ndarray],
        *,
        min_versions: Sequence[int] | None = None,
        timeout_seconds: float = 60.0,
    ) -> tuple[list[np.ndarray], list[int]]:
        """Reads embeddings of several tables, all as they were after the same update.

        Training may go on meanwhile.

        Args:
            tables: Dim of each table, by its name.
            keys: Keys of each table, int64 `[n]`, in the order of `tables`.
            min_versions: Lowest acceptable version of each table. Default: any.
            timeout_seconds: Seconds to wait for these versions. Default 60.

        Returns:
            The embeddings of each table, float32 `[n, dim]`, and the version of each table.

        Raises:
            TfhybridError: The versions were not reached in time, or the leader died.
        """
        keys = [np.ascontiguousarray(of_table, np.int64) for of_table in keys]
        rows = [
            np.empty((len(of_table), dim), np.float32)
            for of_table, dim in zip(keys, tables.values(), strict=True)
        ]
        count = len(tables)
        versions = (ctypes.c_uint64 * count)()
        self.call(
            "read",
            ctypes.c_int(count),
            (ctypes.c_char_p * count)(*(name.encode() for name in tables)),
            None if min_versions is None else (ctypes.c_uint64 * count)(*min_versions),
            (ctypes.c_int64 * count)(*map(len, keys)),
            native.pointers(keys),
            native.pointers(rows),
            ctypes.c_int(round(timeout_seconds * 1000)),
            versions,
        )
        return rows, list(versions)

    def open_update(
        self,
        name: str,
        tables: dict[str, int],
        choices: UpdateChoices | None = None,
        steps: int = 0,
    ) -> Update:
        """Opens an update of some tables, or returns the one of that name that is open.

        Args:
            name: Name of the update; equal on all ranks.
            tables: Dim of each table, by its name. The tables must be open.
            choices: Settings of the update; the same in later calls. Default: `UpdateChoices()`.
            steps: Number of steps that the job has already done. Above 0 only on an embedding node
                that received its rows from another one.

        Raises:
            ConfigError: A setting is invalid, or the update is open with other settings.
            StoreError: No store is open, or a table is not open in it.
        """
        return Update(self.handle, name, tables, choices or UpdateChoices(), steps)

    def _by_file(self, function: str) -> dict[str, int]:
        lines = native.text(function, self.handle).split("\n")[:-1]
        return {file: int(number) for number, file in (line.split(" ") for line in lines)}


def _encoded(name: str) -> bytes:
    """Returns a table's name for C, which would take a zero for its end."""
    encoded = name.encode(errors="replace")  # of half a surrogate
    if "\0" in name or encoded.decode() != name:
        raise ConfigError(f"A table's name must be text without zeros. Received: {name!r}")
    return encoded
