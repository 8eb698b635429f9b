"""Where samples come from: a process that serves prepared batches, as a file server would.

    python -m benchmarks.roles.roles.source HOST:PORT RANKS WORKLOAD

WORKLOAD is the fields of a `Workload` in JSON. It prints "ready" once it serves.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.data import Ragged
from tfhybrid.errors import StoreError
from tfhybrid.rpc.messages import MessageLink

LABEL, SPLITS = "label", ".splits"


class Remote:
    """The batches of a rank, over a connection of each iteration.

    Args:
        address: HOST:PORT of the source.
        rank: Whose.
    """

    def __init__(self, address: str, rank: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._rank = rank
        with contextlib.closing(self._connect()) as link:
            link.send({"rank": rank})
            self._count = int(link.receive()[0]["count"])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        with contextlib.closing(self._connect()) as link:
            for number in range(self._count):
                link.send({"rank": self._rank, "number": number})
                yield _element(link.receive()[1])

    def _connect(self) -> MessageLink:
        return MessageLink(socket.create_connection(self._address), "the source of samples")


def arrays_of(element: tuple[Mapping[str, Any], np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a batch as it travels."""
    features, labels = element
    arrays = {LABEL: labels}
    for name, values in features.items():
        if isinstance(values, Ragged):
            arrays |= {name: values.values, name + SPLITS: values.splits}
        else:
            arrays[name] = values
    return arrays


def _element(arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], np.ndarray]:
    labels = arrays.pop(LABEL)
    splits = {name: arrays.pop(name) for name in [*arrays] if name.endswith(SPLITS)}
    features = {
        name: Ragged(values, splits[name + SPLITS]) if name + SPLITS in splits else values
        for name, values in arrays.items()
    }
    return features, labels


def serve(link: MessageLink, of_ranks: Sequence[Sequence[Any]]) -> None:
    """Answers until the other end is gone."""
    with contextlib.closing(link), contextlib.suppress(StoreError):
        while True:
            asked, _ = link.receive()
            batches = of_ranks[asked["rank"]]
            if "number" in asked:
                link.send({}, arrays_of(batches[asked["number"]]))
            else:
                link.send({"count": len(batches)})


def main() -> None:
    """Draws the batches of all ranks, and serves them until it is killed."""
    from benchmarks.roles.roles.workload import Workload

    address, ranks, fields = sys.argv[1:]
    workload = Workload(**json.loads(fields))
    of_ranks = [workload.batches(rank, int(ranks)) for rank in range(int(ranks))]
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listening:
        print("ready", flush=True)
        while True:
            link, peer = listening.accept()
            told = MessageLink(link, str(peer)), of_ranks
            threading.Thread(target=serve, args=told, daemon=True).start()


if __name__ == "__main__":
    main()
