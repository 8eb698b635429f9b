"""The cost model by which rank 0 chooses how messages travel between hosts."""

from __future__ import annotations

import dataclasses
import statistics

from tfhybrid.distributed import Link
from tfhybrid.ops.table_ops import ExchangeStats

ALLGATHER, OWNER_REDUCE = 0, 1
_NAMES = ("allgather", "owner-reduce")

# The first steps trace graphs and fill caches; then some are looked at before the choice, and some
# after it.
_WARM_STEPS = 4
_LOOKED_AT = 8


@dataclasses.dataclass(frozen=True)
class Load:
    """What a step exchanges, as medians over steps.

    Args:
        hosts: Number of hosts.
        merged_keys: Keys of this host.
        received_keys: Keys of all hosts, a key counted once per host.
        updated_keys: Distinct keys of all hosts.
        key_bytes: Bytes of a key in a message, its gradient included.
        merge_seconds: Seconds that merging takes per key.
    """

    hosts: int
    merged_keys: float
    received_keys: float
    updated_keys: float
    key_bytes: float
    merge_seconds: float


def predict(load: Load, link: Link) -> tuple[float, float]:
    """Returns the seconds from merged host to merged update, by allgather and by owner-reduce.

    By allgather each host receives all others' keys, in one collective, and merges them all. By
    owner-reduce it receives its share of the others' keys and merges that, then the other owners'
    share of the distinct keys.
    """
    share = (load.hosts - 1) / load.hosts
    merge = load.merge_seconds
    allgather = (
        link.latency
        + link.gather_seconds(share * load.received_keys * load.key_bytes)
        + merge * load.received_keys
    )
    owner_reduce = (
        2 * link.latency
        + link.scatter_seconds(share * load.received_keys / load.hosts * load.key_bytes)
        + link.gather_seconds(share * load.updated_keys * load.key_bytes)
        + merge * (load.received_keys / load.hosts + load.updated_keys)
    )
    return allgather, owner_reduce


class RouteChoice:
    """Looks at some steps, chooses, looks at some more, and says what came of it.

    Args:
        link: Between the hosts.
        hosts: Number of them.
    """

    def __init__(self, link: Link, hosts: int) -> None:
        self.route = ALLGATHER
        self._link = link
        self._hosts = hosts
        self._steps: list[tuple[ExchangeStats, int]] = []
        self._predicted = (0.0, 0.0)

    def add(self, stats: ExchangeStats, words: int) -> str:
        """Takes one step into account; returns a line about the choice when all is known.

        Args:
            stats: Of the step.
            words: 64-bit words of the messages of all hosts.
        """
        self._steps.append((stats, words))
        if len(self._steps) == _WARM_STEPS + _LOOKED_AT:
            load = self._load()
            link, waiting = self._seen_link(load)
            allgather, owner_reduce = predict(load, link)
            self._predicted = (allgather + waiting, owner_reduce + waiting)
            self.route = int(self._predicted[OWNER_REDUCE] < self._predicted[ALLGATHER])
        # The step after next is the first to travel as chosen.
        if len(self._steps) < 2 * (_WARM_STEPS + _LOOKED_AT):
            return ""
        recent = [stats.total_ns for stats, _ in self._steps[-_LOOKED_AT:]]
        return (
            f"gradients travel between hosts by {_NAMES[self.route]}: predicted "
            f"{1e3 * self._predicted[self.route]:.1f} ms a step, measured "
            f"{statistics.median(recent) / 1e6:.1f} ms "
            f"({_NAMES[1 - self.route]}: predicted {1e3 * self._predicted[1 - self.route]:.1f} ms)"
        )

    def _seen_link(self, load: Load) -> tuple[Link, float]:
        """Returns the link as steps saw it, and the seconds that leaders waited for each other.

        What was measured at the start says how an all-to-all compares with an allgather. How fast
        either is for messages of a step's size, while ranks work, only the steps say: a link may
        let a short burst pass. The fastest step is the one in which nobody was waited for.
        """
        seconds = [stats.exchange_ns / 1e9 for stats, _ in self._steps[_WARM_STEPS:]]
        received = (load.hosts - 1) / load.hosts * load.received_keys * load.key_bytes
        byte = max(min(seconds) - self._link.latency, 0.0) / max(received, 1.0)
        measured = self._link.gather_byte
        scatter = byte * self._link.scatter_byte / measured if measured > 0 else byte
        return Link(self._link.latency, byte, scatter), statistics.median(seconds) - min(seconds)

    def _load(self) -> Load:
        steps = self._steps[_WARM_STEPS:]

        def median(name: str) -> float:
            return statistics.median(getattr(stats, name) for stats, _ in steps)

        received = median("received_keys")
        return Load(
            hosts=self._hosts,
            merged_keys=median("merged_keys"),
            received_keys=received,
            updated_keys=median("updated_keys"),
            key_bytes=8 * statistics.median(words for _, words in steps) / max(received, 1),
            merge_seconds=median("merge_ns") / max(median("posted_keys"), 1) / 1e9,
        )
