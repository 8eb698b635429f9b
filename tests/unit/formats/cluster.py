"""The files of a cluster's processes, and the messages between them."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path
from typing import Any

import numpy as np

from tfhybrid.cluster import membership, placed_processes
from tfhybrid.core.split_batches import RowRead
from tfhybrid.data_nodes import key_links, read_log
from tfhybrid.data_nodes.data_streams import BY_BATCH, BY_FILE, Reading
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.rpc import handshake, messages
from tfhybrid.stream.provider.lease_length import Load
from tfhybrid.stream.provider.work import Request
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.lease import Lease, QueueProgress

# State of the metadata node.

VIEW = membership.View(
    epoch=3,
    owners=("embedding-1", "embedding-0"),
    nodes={
        "embedding-0": membership.Node(
            "embedding-0", "embedding", ("10.0.0.1", 91), membership.NodeState.READY, "a1"
        ),
        "data-0": membership.Node(
            "data-0", "data", ("10.0.0.2", 92), membership.NodeState.REGISTERED, "b2"
        ),
        "embedding-1": membership.Node(
            "embedding-1",
            "embedding",
            ("10.0.0.3", 93),
            membership.NodeState.DRAINING,
            "c3",
            draining=True,
        ),
        "data-1": membership.Node(
            "data-1", "data", ("10.0.0.4", 94), membership.NodeState.LOST, "d4"
        ),
    },
)
STATE = "state.json"


def write_membership(folder: Path, _: Path) -> None:
    nodes = membership.Membership(folder / STATE, ["embedding-0", "embedding-0"])
    for node in VIEW.nodes.values():
        nodes.register(node.name, node.role, node.address, node.incarnation)
    nodes.heard_of("embedding-0", "a1")
    nodes.heard_of("embedding-1", "c3")
    epoch = nodes.view.epoch
    nodes.move(0, "embedding-0", "embedding-1", epoch)
    nodes.drain("embedding-1")
    nodes.set_state("data-1", "d4", membership.NodeState.LOST)


def read_membership(folder: Path, _: Path) -> membership.View:
    return membership.read_view(folder / STATE)


# Log of what a trainer read.

READS = "reads.jsonl"


def write_read_log(folder: Path, _: Path) -> None:
    log = read_log.ReadLog(
        lambda: [RowRead(1, "item", 101, 102, 103), RowRead(2, "user", 104, 105, 106)]
    )
    log.write_to(folder / READS)
    log.name(1, "batch/1")
    log.note()


def read_read_log(folder: Path, _: Path) -> Any:
    return [json.loads(line) for line in (folder / READS).read_text().splitlines()]


READ_LOG = [
    {"batch": "batch/1", "table": "item", "owner": 101, "read": 103, "applied": 103},
    {"batch": None, "table": "user", "owner": 104, "read": 106, "applied": 106},
]


# Processes that are to be started. The commands are made up: those of a cluster name modules.

PROCESSES = [
    placed_processes.PlacedProcess(
        name="data-0",
        command=("python", "reader.py"),
        environment={"TFHYBRID_NODE_NAME": "data-0"},
        cpus=141,
        numa=142,
        may_end=True,
    ),
    placed_processes.PlacedProcess("other", ("sleep", "9")),
]


def write_processes(folder: Path, _: Path) -> None:
    placed_processes.write(folder / "processes.json", PROCESSES)


def read_processes(folder: Path, _: Path) -> Any:
    return placed_processes.read(folder / "processes.json")


# Messages: one, as it travels; and the JSON in the others.

HANDSHAKE = handshake.Handshake(
    to=handshake.Purpose.UPDATES, name="trainer-1", session="job", host=151, shard=152, rank=153
)
LEASE = Lease(
    fence=161,
    holder="trainer-1",
    begin=QueuePosition(162, 163),
    end=QueuePosition(164, 165),
    rows=6,
)
DECLARED = Declared({"clicked": "item"}, {"item": (171, 172)}, first_owner=173, hosts=174)
PLAIN = {
    "reading": Reading("dataset", {"path": "day"}, 181, 182, 183, 184, BY_FILE, "label"),
    "sent keys": key_links.SentKeys(
        191, ("batch", "digest"), 192, True, [193], {"item": 194}, key_links.NOTIFY, 195
    ),
    "request of a lease": Request(
        "trainer-1", 201, "ads", "video", 202, Load(204.5, 205.5), 203, direct=True
    ),
    "standing": QueueProgress(
        211, QueuePosition(212, 213), [(QueuePosition(214, 215), QueuePosition(216, 217))]
    ),
}


def framed() -> bytes:
    """Returns the bytes of a message with an array."""
    ours, theirs = socket.socketpair()
    link = messages.MessageLink(ours, "peer")
    link.send({"call": "open", "arguments": {"number": 221}}, {"keys": np.array([222, 223])})
    link.close()
    with theirs:
        return b"".join(iter(lambda: theirs.recv(1 << 16), b""))


def received(content: bytes) -> Any:
    """Returns the message that has these bytes."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(content)
        link = messages.MessageLink(ours, "peer")
        message, arrays = link.receive()
        link.close()
    return message, {name: (str(each.dtype), each.tolist()) for name, each in arrays.items()}


def write_messages(folder: Path, _: Path) -> None:
    words = {
        "links": [str(link) for link in handshake.Purpose],
        "who reads what": [BY_BATCH, BY_FILE],
        "who speaks first": [key_links.PULL, key_links.NOTIFY, key_links.PUSH],
    }
    plain = {name: dataclasses.asdict(each) for name, each in PLAIN.items()}
    own = {"lease": dataclasses.asdict(LEASE), "declared": dataclasses.asdict(DECLARED)}
    (folder / "messages.json").write_text(json.dumps(words | plain | own, indent=1))
    (folder / "greeting.json").write_text(HANDSHAKE.text())
    (folder / "framed").write_bytes(framed())


def lease_from(fields: dict[str, Any]) -> Lease:
    begin, end = (QueuePosition(*fields.pop(name)) for name in ("begin", "end"))
    return Lease(begin=begin, end=end, **fields)


def declared_from(fields: dict[str, Any]) -> Declared:
    placements = {table: tuple(its) for table, its in fields.pop("placements").items()}
    return Declared(placements=placements, **fields)


def read_messages(folder: Path, _: Path) -> Any:
    content = json.loads((folder / "messages.json").read_text())
    return (
        handshake.Handshake.heard((folder / "greeting.json").read_text()),
        lease_from(content["lease"]),
        declared_from(content["declared"]),
        Reading(**content["reading"]),
        key_links.SentKeys(
            **{**content["sent keys"], "batch": tuple(content["sent keys"]["batch"])}
        ),
        received((folder / "framed").read_bytes()),
    )


MESSAGES = (
    HANDSHAKE,
    LEASE,
    DECLARED,
    PLAIN["reading"],
    PLAIN["sent keys"],
    ({"call": "open", "arguments": {"number": 221}}, {"keys": ("int64", [222, 223])}),
)
