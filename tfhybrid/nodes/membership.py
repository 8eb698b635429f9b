"""Which nodes a job's cluster has, their states, and the allocation: what the metadata node keeps.

A file of JSON holds it, replaced whole at each change. The epoch counts what trainers must know
of: each time that an owner of slots comes as another process or at another address.
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

from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import CorruptFileError, NameTakenError, StaleEpochError, StoreError

SLOTS = 4096  # `Allocation::kSlots`
OWNING_ROLE = "embedding"
FORMAT = 1


class NodeState(enum.StrEnum):
    """What a node is doing."""

    JOINING = "joining"  # known, and not heard of since
    READY = "ready"
    LOST = "lost"
    DRAINING = "draining"  # finishes the job that it has, and begins no other


@dataclasses.dataclass(frozen=True)
class Node:
    """A process of the cluster.

    Args:
        name: Unique within the cluster.
        role: What it does: `"embedding"`, `"data"`, or another.
        address: Where it listens.
        state: What it is doing.
        incarnation: Of the process, random.
        draining: Whether it begins no other job, also after it was lost for a while.
    """

    name: str
    role: str
    address: tuple[str, int]
    state: NodeState
    incarnation: str
    draining: bool = False

    def lives_as(self, role: str) -> bool:
        """Returns whether it has that role, and is not lost."""
        return self.role == role and self.state != NodeState.LOST


@dataclasses.dataclass(frozen=True)
class View:
    """What the metadata node says at one time.

    Args:
        epoch: Of the allocation.
        owners: Of each share of the slots, the name of the node that owns it.
        nodes: All that have ever joined, by name.
    """

    epoch: int
    owners: tuple[str, ...]
    nodes: dict[str, Node]

    def missing(self) -> list[str]:
        """Returns the owners that are not ready."""
        ready = {name for name, node in self.nodes.items() if node.state == NodeState.READY}
        return [name for name in dict.fromkeys(self.owners) if name not in ready]

    def living(self, role: str) -> tuple[str, ...]:
        """Returns the names of the nodes of a role that are not lost, in order."""
        return tuple(
            sorted(
                (name for name, node in self.nodes.items() if node.lives_as(role)),
                key=lambda name: (len(name), name),  # data-2 before data-10
            )
        )

    def slots(self) -> list[tuple[str, int, int]]:
        """Returns the owner of each share of the slots: its name, the first one, and how many."""
        count = len(self.owners)
        # As of `Allocation::Even`: slot s belongs to owner s * count / SLOTS.
        firsts = [-(-number * SLOTS // count) for number in range(count)] + [SLOTS]
        return [
            (name, firsts[number], firsts[number + 1] - firsts[number])
            for number, name in enumerate(self.owners)
        ]

    def as_json(self) -> dict[str, Any]:
        """Returns it as a message or the file has it."""
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "owners": list(self.owners),
            "nodes": [dataclasses.asdict(node) for node in self.nodes.values()],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> View:
        """Returns what `as_json` was made from.

        Raises:
            KeyError, TypeError, ValueError: It is nothing of the kind.
        """
        if fields["format"] != FORMAT:
            raise ValueError(f"format {FORMAT} is known. Received: {fields['format']!r}")
        nodes = {}
        for its in fields["nodes"]:
            host, port = its["address"]
            nodes[str(its["name"])] = Node(
                str(its["name"]),
                str(its["role"]),
                (str(host), int(port)),
                NodeState(its["state"]),
                str(its["incarnation"]),
                bool(its["draining"]),
            )
        return cls(int(fields["epoch"]), tuple(map(str, fields["owners"])), nodes)


class Membership:
    """The state of the metadata node. Thread-safe.

    Args:
        path: Of the file; taken over where there is one.
        owners: Of each share of the slots, the node that owns it at first; later the file says.

    Raises:
        CorruptFileError: The file is damaged.
        StoreError: It is of a cluster with another number of shares.
    """

    def __init__(self, path: Path, owners: Sequence[str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._view = View(1, tuple(owners), {})
        if path.exists():
            self._view = self._taken_over(tuple(owners))
        self._write(self._view)

    @property
    def view(self) -> View:
        """What is so now."""
        with self._lock:
            return self._view

    def join(self, name: str, role: str, address: tuple[str, int], incarnation: str) -> int:
        """Notes that a node is there; returns the epoch.

        Raises:
            NameTakenError: Another process of that name is.
        """
        with self._lock:
            known = self._view.nodes.get(name)
            living = known is not None and known.state != NodeState.LOST
            if known is not None and living and known.incarnation != incarnation:
                raise NameTakenError(
                    f"Node '{name}' is {known.state} at {known.address[0]} port "
                    f"{known.address[1]}. Received: another one at {address[0]} port {address[1]}"
                )
            same = known is not None and known.incarnation == incarnation
            draining = known is not None and same and known.draining
            state = NodeState.DRAINING if draining else NodeState.JOINING
            node = Node(name, role, address, state, incarnation, draining)
            another = known is None or (known.incarnation, known.address) != (incarnation, address)
            epoch = self._view.epoch + (another and name in self._view.owners)
            self._set(node, epoch)
            return epoch

    def heard_of(self, name: str, incarnation: str) -> None:
        """Notes that a node works."""
        with self._lock:
            known = self._view.nodes[name]
            if known.incarnation == incarnation and known.state == NodeState.JOINING:
                self._set(dataclasses.replace(known, state=NodeState.READY), self._view.epoch)

    def drain(self, name: str) -> None:
        """Has a node begin no other job; it is ready again when it is started again.

        Raises:
            StoreError: There is no such node, or it is lost.
        """
        with self._lock:
            known = self._view.nodes.get(name)
            if known is None or known.state == NodeState.LOST:
                living = sorted(
                    node.name for node in self._view.nodes.values() if node.state != NodeState.LOST
                )
                raise StoreError(f"The nodes are {living}. Received: {name!r}")
            draining = dataclasses.replace(known, state=NodeState.DRAINING, draining=True)
            self._set(draining, self._view.epoch)

    def move(self, share: int, origin: str, to: str, epoch: int) -> int:
        """Gives a share to another node; returns the new epoch.

        Args:
            share: Its place in `View.owners`.
            origin: The node that has it.
            to: A node that is ready; `origin` itself to have moves of this epoch refused.
            epoch: Under which this was planned.

        Raises:
            StaleEpochError: The allocation has changed since.
            StoreError: The nodes are not as was thought.
        """
        with self._lock:
            view = self._view
            if epoch != view.epoch:
                raise StaleEpochError(f"The allocation is of epoch {view.epoch}. Received: {epoch}")
            node = view.nodes.get(to)
            if not 0 <= share < len(view.owners) or view.owners[share] != origin:
                raise StoreError(f"The shares belong to {view.owners}. Received: {share}, {origin}")
            ready = node is not None and (node.role, node.state) == (OWNING_ROLE, NodeState.READY)
            if not ready and to != origin:
                raise StoreError(
                    f"A share moves to an embedding node that is ready. Received: {node}"
                )
            owners = (*view.owners[:share], to, *view.owners[share + 1 :])
            moved = View(epoch + 1, owners, view.nodes)
            self._write(moved)
            self._view = moved
            return moved.epoch

    def set_state(self, name: str, incarnation: str, state: NodeState) -> None:
        """Notes what a node does now, if that process is still the one of its name."""
        with self._lock:
            known = self._view.nodes.get(name)
            if known is not None and known.incarnation == incarnation and known.state != state:
                self._set(dataclasses.replace(known, state=state), self._view.epoch)

    def seconds_in_state(self, name: str) -> float:
        """Returns for how long a node has been what it is; since the start, after one."""
        with self._lock:
            return time.monotonic() - self._since.get(name, time.monotonic())

    def _set(self, node: Node, epoch: int) -> None:
        view = View(epoch, self._view.owners, {**self._view.nodes, node.name: node})
        self._write(view)  # before anybody learns of it
        self._view = view
        self._since[node.name] = time.monotonic()

    def _write(self, view: View) -> None:
        write_whole(self._path, json.dumps(view.as_json(), indent=1).encode())

    def _taken_over(self, owners: tuple[str, ...]) -> View:
        try:
            view = View.from_json(json.loads(self._path.read_text()))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(
                f"{self._path} is no state of a metadata node: {error!r}"
            ) from error
        if len(view.owners) != len(owners):
            raise StoreError(
                f"{self._path} is of a cluster whose slots are {len(view.owners)} shares, of "
                f"{list(view.owners)}. Received: {list(owners)}"
            )
        # Who is still there comes back by itself.
        lost = {
            name: dataclasses.replace(node, state=NodeState.LOST)
            for name, node in view.nodes.items()
        }
        return View(view.epoch, view.owners, lost)
