"""How a node stays known to the metadata node, and how others look it up."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfhybrid.errors import PeerDiedError, StoreError, TfhybridError
from tfhybrid.nodes import door
from tfhybrid.nodes.calls import Caller
from tfhybrid.nodes.greetings import Greeting, Link
from tfhybrid.nodes.membership import NodeState, View
from tfhybrid.nodes.node_options import NodeOptions
from tfhybrid.nodes.tls import Tls, dialled

_log = logging.getLogger("tfhybrid.nodes")

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 5.0
_BEAT_SECONDS = 0.5
_TOLD_SECONDS = 5.0


def call_metadata(
    address: tuple[str, int], token: str, name: str, tls: Tls | None = None
) -> Caller:
    """Connects to the metadata node.

    Args:
        address: Of it.
        token: Of the cluster.
        name: What this process calls itself.
        tls: What encrypts the connection; `None` for none.

    Raises:
        PeerDiedError: It cannot be reached.
    """
    greeting = Greeting(Link.CALLS, name).text()
    wrap = dialled(tls, "the metadata node")
    try:
        link = door.dial(address, token, greeting, _CONNECT_SECONDS, _SILENCE_SECONDS, wrap)
    except OSError as error:
        raise PeerDiedError(
            f"The metadata node cannot be reached at {address[0]} port {address[1]}: {error}"
        ) from error
    return Caller(link, f"the metadata node at {address[0]} port {address[1]}")


def look_up(
    address: tuple[str, int], token: str, name: str, seconds: float, tls: Tls | None = None
) -> View:
    """Asks the metadata node for the cluster, once all owners of slots are ready.

    Args:
        address: Of it.
        token: Of the cluster.
        name: What this process calls itself.
        seconds: How long to wait for nodes that are not ready.
        tls: What encrypts the connection; `None` for none.

    Raises:
        StoreError: The metadata node cannot be reached or refuses this process, or a node is not
            ready in time.
    """
    deadline = time.monotonic() + seconds
    caller = call_metadata(address, token, name, tls)
    try:
        while True:
            view = View.from_json(caller.ask("view")[0])
            missing = view.missing()
            if not missing:
                return view
            if any(view.nodes[name].draining for name in missing if name in view.nodes):
                caller.ask("balance")  # the job during which it began to drain is over
            if time.monotonic() > deadline:
                states = {name: its.state.value for name, its in view.nodes.items()}
                raise StoreError(
                    f"The nodes {list(view.owners)} own slots and shall be ready. "
                    f"Received: {states}"
                )
            time.sleep(0.1)
    finally:
        caller.close()


def address_of(
    address: tuple[str, int], token: str, name: str, node: str, tls: Tls | None = None
) -> tuple[str, int]:
    """Asks the metadata node where a node listens.

    Args:
        address: Of the metadata node.
        token: Of the cluster.
        name: What this process calls itself.
        node: Name of the node.
        tls: What encrypts the connection; `None` for none.

    Raises:
        StoreError: The metadata node cannot be reached, or the node is lost.
    """
    caller = call_metadata(address, token, name, tls)
    try:
        known = View.from_json(caller.ask("view")[0]).nodes.get(node)
    finally:
        caller.close()
    if known is None or known.state == NodeState.LOST:
        raise StoreError(f"{node} is wanted, which is lost or was never there")
    return known.address


class Registration:
    """Keeps a node known to the metadata node, and knows the epoch.

    The metadata node may die and return: the node works on meanwhile.

    Args:
        options: With which this node was started.
        role: Of this node.
        address: Where this node listens.
        numbers: What the status page shall show of it.
    """

    def __init__(
        self,
        options: NodeOptions,
        role: str,
        address: tuple[str, int],
        numbers: Callable[[], Mapping[str, float]],
    ) -> None:
        self._tls = options.tls
        self._metadata = options.metadata
        self._token = options.token
        self._name = options.name
        self._role = role
        self._address = address
        self._numbers = numbers
        self._incarnation = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._epoch = 0
        self._draining = False
        self._told = threading.Condition()
        self._wake = threading.Event()
        self._begun = self._acknowledged = 0  # beats; guarded by _told
        self._thread = threading.Thread(target=self._run, name="tfhybrid-registration", daemon=True)
        self._thread.start()

    def epoch(self, at_least: int) -> int:
        """Returns the epoch that the metadata node told last; 0 before it has told any.

        Args:
            at_least: What another process was told; waited for, for a moment.
        """
        with self._told:
            self._told.wait_for(lambda: self._epoch >= at_least, _TOLD_SECONDS)
            return self._epoch

    def tell(self) -> None:
        """Has the metadata node know what this node does now; waits for a moment.

        Where it cannot be reached it knows nothing, and moves no rows.
        """
        with self._told:
            wanted = self._begun + 1
            self._wake.set()
            self._told.wait_for(lambda: self._acknowledged >= wanted, _TOLD_SECONDS)

    @property
    def draining(self) -> bool:
        """Whether the node shall begin no other job."""
        return self._draining

    def stop(self) -> None:
        """Ends it: the node is lost to the metadata node."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        failed = False
        while not self._stopping.is_set():
            try:
                self._stay_known()
                failed = False
            except TfhybridError as error:
                if not failed and not self._stopping.is_set():
                    _log.warning("%s: %s. It goes on, and tries again", self._name, error)
                failed = True
                self._stopping.wait(_BEAT_SECONDS)

    def _hear(self, said: Mapping[str, Any]) -> None:
        with self._told:
            self._epoch = int(said["epoch"])
            self._draining = bool(said["draining"])
            self._told.notify_all()

    def _beat(self, caller: Caller) -> None:
        with self._told:
            self._begun += 1
            number = self._begun
        self._hear(caller.ask("beat", {"numbers": dict(self._numbers())})[0])
        with self._told:
            self._acknowledged = number
            self._told.notify_all()

    def _stay_known(self) -> None:
        caller = call_metadata(self._metadata, self._token, self._name, self._tls)
        try:
            me = {
                "name": self._name,
                "role": self._role,
                "address": list(self._address),
                "incarnation": self._incarnation,
            }
            self._hear(caller.ask("join", me)[0])
            while not self._stopping.is_set():
                self._beat(caller)
                self._wake.wait(_BEAT_SECONDS)
                self._wake.clear()
        finally:
            caller.close()
