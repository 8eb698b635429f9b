"""State of the metadata node: the nodes of a cluster, their states, and the allocation of slots.

A JSON file with a checksum holds it and is replaced as a whole at each change. The allocation epoch
counts the changes that trainers must know: an owner of slots is another process or has another
address, or a shard has another owner.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfhybrid.core.checked_object import encoded, without_checksum
from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import CorruptFileError, NameTakenError, StaleEpochError, StoreError

SLOTS = 4096  # `Allocation::kSlots`
OWNING_ROLE = "embedding"
FORMAT = 1


class NodeState(enum.StrEnum):
    """State of a node, from which follows whether the node may own shards and start a job."""

    REGISTERED = "joining"  # has registered, but sent no heartbeat yet
    READY = "ready"
    LOST = "lost"  # its connection has ended
    DRAINING = "draining"  # finishes its job, but starts no other


@dataclasses.dataclass(frozen=True)
class Node:
    """Registered process of a cluster.

    Args:
        name: Name of the node, unique within the cluster.
        role: Name of the role: `"embedding"`, `"data"`, or a role of the user's cluster file.
        address: Host and port of its listener.
        state: State of the node: registered, ready, draining or lost.
        incarnation: Random id of the process. A restarted node has another one.
        draining: Whether `Membership.drain` was called for this incarnation. Unlike the state, it
            stays true while the node is lost. Default: False.
    """

    name: str
    role: str
    address: tuple[str, int]
    state: NodeState
    incarnation: str
    draining: bool = False

    def lives_as(self, role: str) -> bool:
        """Returns whether the node has this role and is not lost; it may be draining.

        Args:
            role: Name of the role.
        """
        return self.role == role and self.state != NodeState.LOST


@dataclasses.dataclass(frozen=True)
class View:
    """Immutable snapshot of a cluster.

    Args:
        epoch: Allocation epoch.
        owners: Name of the owner of each shard of the slots.
        nodes: Nodes that have ever registered, by name.
    """

    epoch: int
    owners: tuple[str, ...]
    nodes: dict[str, Node]

    def missing(self) -> list[str]:
        """Returns the names of the owners that are not ready, each once."""
        ready = {name for name, node in self.nodes.items() if node.state == NodeState.READY}
        return [name for name in dict.fromkeys(self.owners) if name not in ready]

    def living(self, role: str) -> tuple[str, ...]:
        """Returns the names of the nodes of a role that are not lost; data-2 before data-10.

        Args:
            role: Role of the nodes, such as "data".
        """
        return tuple(
            sorted(
                (name for name, node in self.nodes.items() if node.lives_as(role)),
                key=lambda name: (len(name), name),  # data-2 before data-10
            )
        )

    def slots(self) -> list[tuple[str, int, int]]:
        """Returns the shards in order: name of the owner, first slot, number of slots."""
        count = len(self.owners)
        # Same as `Allocation::Even`: slot s belongs to owner s * count / SLOTS.
        firsts = [-(-number * SLOTS // count) for number in range(count)] + [SLOTS]
        return [
            (name, firsts[number], firsts[number + 1] - firsts[number])
            for number, name in enumerate(self.owners)
        ]

    def as_json(self) -> dict[str, Any]:
        """Returns the snapshot as JSON-serializable fields, as in messages between nodes."""
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "owners": list(self.owners),
            "nodes": [dataclasses.asdict(node) for node in self.nodes.values()],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> View:
        """Parses the output of `as_json`.

        Args:
            fields: Snapshot as JSON.

        Returns:
            The snapshot.

        Raises:
            KeyError, TypeError, ValueError: The fields are not a snapshot of this format.
        """
        if fields["format"] != FORMAT:
            raise ValueError(f"The format must be {FORMAT}. Received: {fields['format']!r}")
        nodes = {}
        for node in fields["nodes"]:
            host, port = node["address"]
            nodes[str(node["name"])] = Node(
                str(node["name"]),
                str(node["role"]),
                (str(host), int(port)),
                NodeState(node["state"]),
                str(node["incarnation"]),
                bool(node["draining"]),
            )
        return cls(int(fields["epoch"]), tuple(map(str, fields["owners"])), nodes)


def read_view(path: Path) -> View:
    """Reads the state file of a metadata node.

    Args:
        path: Path of the file.

    Returns:
        The snapshot that the node wrote last.

    Raises:
        CorruptFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    try:
        return View.from_json(without_checksum(json.loads(path.read_bytes()), path))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{path} is not a valid state file of a metadata node: {error!r}"
        ) from error


class Membership:
    """Mutable state of the metadata node, kept in a file. Thread-safe.

    Each change is in the file before any caller can see it.

    Args:
        path: Path of the file. If it exists, its state is loaded and all nodes start as lost.
        owners: Name of the node that owns each shard of the slots in a new cluster. An existing
            file overrides the names, but not their number.

    Raises:
        CorruptFileError: The file is damaged.
        StoreError: The file belongs to a cluster with another number of shards.
        OSError: The file cannot be read or written.
    """

    def __init__(self, path: Path, owners: Sequence[str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._view = View(1, tuple(owners), {})
        if path.exists():
            self._view = self._loaded(tuple(owners))
        self._write(self._view)

    @property
    def view(self) -> View:
        """Current snapshot of the cluster."""
        with self._lock:
            return self._view

    def register(self, name: str, role: str, address: tuple[str, int], incarnation: str) -> int:
        """Registers a node, or the same process again after its connection broke.

        Args:
            name: Name of the node.
            role: Role of the node.
            address: Host and port of its listener.
            incarnation: Random id of its process.

        Returns:
            The allocation epoch. It has grown if an owner of slots is another process or has
            another address.

        Raises:
            NameTakenError: Another living process has registered this name.
            OSError: The file cannot be written. Nothing was changed.
        """
        with self._lock:
            old = self._view.nodes.get(name)
            living = old is not None and old.state != NodeState.LOST
            if old is not None and living and old.incarnation != incarnation:
                raise NameTakenError(
                    f"Node '{name}' is {old.state} at {old.address[0]} port {old.address[1]}. "
                    f"Received: another process at {address[0]} port {address[1]}"
                )
            same = old is not None and old.incarnation == incarnation
            draining = old is not None and same and old.draining
            state = NodeState.DRAINING if draining else NodeState.REGISTERED
            node = Node(name, role, address, state, incarnation, draining)
            another = old is None or (old.incarnation, old.address) != (incarnation, address)
            epoch = self._view.epoch + (another and name in self._view.owners)
            self._set(node, epoch)
            return epoch

    def heard_of(self, name: str, incarnation: str) -> None:
        """Marks a registered node as ready after its first heartbeat.

        Does nothing if another incarnation has registered the name since.

        Args:
            name: Name of the node.
            incarnation: Random id of the process that sent the heartbeat.

        Raises:
            KeyError: The node has never registered.
            OSError: The file cannot be written. Nothing was changed.
        """
        with self._lock:
            node = self._view.nodes[name]
            if node.incarnation == incarnation and node.state == NodeState.REGISTERED:
                self._set(dataclasses.replace(node, state=NodeState.READY), self._view.epoch)

    def drain(self, name: str) -> None:
        """Marks a node as draining: it starts no other job until its process is restarted.

        Args:
            name: Name of the node.

        Raises:
            StoreError: The node does not exist or is lost.
            OSError: The file cannot be written. Nothing was changed.
        """
        with self._lock:
            node = self._view.nodes.get(name)
            if node is None or node.state == NodeState.LOST:
                living = sorted(
                    each.name for each in self._view.nodes.values() if each.state != NodeState.LOST
                )
                raise StoreError(f"The node must be one of {living}. Received: {name!r}")
            draining = dataclasses.replace(node, state=NodeState.DRAINING, draining=True)
            self._set(draining, self._view.epoch)

    def move(self, shard: int, origin: str, to: str, allocation_epoch: int) -> int:
        """Gives a shard to another node.

        Args:
            shard: Index of the shard in `View.owners`.
            origin: Name of the node that owns it.
            to: Name of the next owner, a ready embedding node. With `origin` itself only the
                allocation epoch grows, so that moves planned under the old one are refused.
            allocation_epoch: Allocation epoch at which the move was planned.

        Returns:
            The new allocation epoch.

        Raises:
            StaleEpochError: The allocation has changed since the move was planned.
            StoreError: `origin` does not own the shard, or `to` is not a ready embedding node.
            OSError: The file cannot be written. Nothing was changed.
        """
        with self._lock:
            view = self._view
            if allocation_epoch != view.epoch:
                raise StaleEpochError(
                    f"The allocation is at epoch {view.epoch}. Received: {allocation_epoch}"
                )
            node = view.nodes.get(to)
            if not 0 <= shard < len(view.owners) or view.owners[shard] != origin:
                raise StoreError(
                    f"The owners of the shards are {view.owners}. Received: shard {shard} of "
                    f"{origin}"
                )
            ready = node is not None and (node.role, node.state) == (OWNING_ROLE, NodeState.READY)
            if not ready and to != origin:
                raise StoreError(
                    f"A shard can only move to an embedding node that is ready. Received: {node}"
                )
            owners = (*view.owners[:shard], to, *view.owners[shard + 1 :])
            moved = View(allocation_epoch + 1, owners, view.nodes)
            self._write(moved)
            self._view = moved
            return moved.epoch

    def set_state(self, name: str, incarnation: str, state: NodeState) -> None:
        """Sets the state of a node, unless another incarnation has registered its name.

        Args:
            name: Name of the node.
            incarnation: Random id of the process to which the state belongs.
            state: New state.

        Raises:
            OSError: The file cannot be written. Nothing was changed.
        """
        with self._lock:
            node = self._view.nodes.get(name)
            if node is not None and node.incarnation == incarnation and node.state != state:
                self._set(dataclasses.replace(node, state=state), self._view.epoch)

    def seconds_in_state(self, name: str) -> float:
        """Returns the seconds since a node's last change; 0 if it has not changed yet.

        Changes before this process started do not count.

        Args:
            name: Name of the node.
        """
        with self._lock:
            return time.monotonic() - self._since.get(name, time.monotonic())

    def _set(self, node: Node, epoch: int) -> None:
        view = View(epoch, self._view.owners, {**self._view.nodes, node.name: node})
        self._write(view)  # before any caller can see the change
        self._view = view
        self._since[node.name] = time.monotonic()

    def _write(self, view: View) -> None:
        write_whole(self._path, encoded(view.as_json(), indent=1))

    def _loaded(self, owners: tuple[str, ...]) -> View:
        view = read_view(self._path)
        if len(view.owners) != len(owners):
            raise StoreError(
                f"{self._path} belongs to a cluster with {len(view.owners)} shards, owned by "
                f"{list(view.owners)}. Received: {list(owners)}"
            )
        # Nodes that still live register again by themselves.
        lost = {
            name: dataclasses.replace(node, state=NodeState.LOST)
            for name, node in view.nodes.items()
        }
        return View(view.epoch, view.owners, lost)
