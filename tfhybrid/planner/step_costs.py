"""What tables add to a step, from a few measured constants (docs/design/0035)."""

from __future__ import annotations

import dataclasses
import json
import math
from importlib import resources

from tfhybrid.planner.step_traffic import Traffic, traffic_of

_LINE = 16  # floats of a cache line
_BESIDE = 40  # bytes of a row besides its values and state: key and index
_NEAR = 2**30  # bytes of tables at which page tables begin to leave the caches


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """A step whose cost is asked for.

    Args:
        tables: Number of tables, all alike.
        rows: Of each.
        dim: Of an embedding.
        state: Floats of optimizer state of a row.
        keys: Of a rank's batch, in each table.
        exponent: The k-th most frequent key comes in proportion to `k ** -exponent`.
        hosts: Number of hosts.
        ranks: Of each host.
        cores: Of each host.
        link: Gbit/s of a host's link.
        gradient_bytes: Of one number of a gradient on the wire.
        sharded: Whether each row lies on one host.
    """

    tables: int
    rows: int
    dim: int
    state: int
    keys: int
    exponent: float
    hosts: int
    ranks: int
    cores: float
    link: float
    gradient_bytes: int = 4
    sharded: bool = False

    def traffic(self) -> Traffic:
        """Returns what a step exchanges for one table."""
        return traffic_of(
            *(self.rows, self.dim, self.keys, self.hosts, self.ranks),
            exponent=self.exponent,
            gradient_bytes=self.gradient_bytes,
            sharded=self.sharded,
        )


@dataclasses.dataclass(frozen=True)
class Costs:
    """The constants: nanoseconds of a core, but for the last one, which is seconds of a step.

    Args:
        line: Of a cache line of 64 bytes that is copied for a looked-up key.
        merged_key: Of a distinct key of a rank, or of another host, that a leader merges.
        applied_line: Of a line of a row that a leader updates, with its state and its index.
        byte: Of a byte that comes from other hosts, and of one that goes to them.
        far_row: Of a row that is looked up or updated, for each time that a host's tables double
            beyond a GiB: memory is the slower the more of it there is.
        step: Of a step, whatever is in it.

    Example:

    >>> sorted(Costs.shipped().terms())[:2]
    ['applied_line', 'byte']
    """

    line: float
    merged_key: float
    applied_line: float
    byte: float
    far_row: float
    step: float

    @classmethod
    def shipped(cls) -> Costs:
        """Returns the constants that `scripts/bench costs` measured last."""
        text = resources.files("tfhybrid.planner").joinpath("step_costs.json").read_text()
        return cls(**json.loads(text)["costs"])

    def terms(self) -> dict[str, float]:
        """Returns them by name."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class StepSeconds:
    """How long a step takes, by what it waits for.

    Args:
        tables: Seconds in which cores look up, merge and apply.
        link: Seconds in which bytes of tables travel.
    """

    tables: float
    link: float

    @property
    def total(self) -> float:
        """Seconds that tables add to a step: the two do not overlap."""
        return self.tables + self.link


def amounts(step: PlannedStep) -> dict[str, float]:
    """Returns how often a step incurs each of `Costs`, on one host.

    What the leader does for all ranks is multiplied, as it has not all cores for it.

    Example:

    >>> one = PlannedStep(1, 1000, 16, 16, 10, 1.0, hosts=1, ranks=1, cores=2, link=10)
    >>> amounts(one)["line"], amounts(one)["step"]
    (10.0, 1.0)
    """
    traffic = step.traffic()
    lines = -(-step.dim // _LINE)
    elsewhere = (step.hosts - 1) / step.hosts
    if step.sharded:
        received = elsewhere * (traffic.host_keys + step.ranks * traffic.rank_keys)
        applied = traffic.all_keys / step.hosts
    else:
        gathered = (step.hosts - 1) * traffic.host_keys
        received = min(gathered, elsewhere * (traffic.host_keys + traffic.all_keys))
        applied = traffic.all_keys
    merged = step.ranks * traffic.rank_keys + received
    of_row = lines + -(-step.state // _LINE) + 1  # and that of the index
    by_leader = step.tables * _leaders_part(step)
    rows = step.tables * step.rows / (step.hosts if step.sharded else 1)
    doublings = math.log2(1 + rows * (4 * (step.dim + step.state) + _BESIDE) / _NEAR)
    touched = step.tables * step.ranks * traffic.rank_keys + by_leader * applied
    return {
        "line": float(step.tables * step.ranks * step.keys * lines),
        "merged_key": by_leader * merged,
        "applied_line": by_leader * applied * of_row,
        "byte": float(step.tables * traffic.host_bytes),
        "far_row": touched * doublings,
        "step": 1.0,
    }


def _leaders_part(step: PlannedStep) -> float:
    """Returns how many times as long a leader works as all cores of its host would.

    Ranks share the cores. If there are more ranks than cores, those that wait leave some of
    theirs to the leader, which has one thread: between its share and a whole core.
    """
    threads = max(1.0, step.cores // step.ranks)
    return math.sqrt(step.ranks * max(1.0, step.cores / threads))


def seconds_of(step: PlannedStep, costs: Costs) -> StepSeconds:
    """Returns how long a step takes beside its model, without what overlaps with it.

    Args:
        step: What is planned.
        costs: Of the machine.
    """
    of = costs.terms()
    counted = {name: amount * of[name] for name, amount in amounts(step).items()}
    waited = counted.pop("step")
    link = step.tables * step.traffic().host_bytes * 8 / (step.link * 1e9)
    return StepSeconds(waited + 1e-9 * sum(counted.values()) / step.cores, link)
