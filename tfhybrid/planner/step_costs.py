"""Cost model of a step: the time that tables add, from measured constants (docs/design/0035)."""

from __future__ import annotations

import dataclasses
import json
import math
from importlib import resources

from tfhybrid.planner.step_traffic import TableStep, Traffic, traffic_of

_LINE = 16  # floats of a cache line
_BESIDE = 40  # bytes of a row's key and index entry
_NEAR = 2**30  # bytes of tables beyond which page tables no longer fit in the caches


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """Parameters of a step whose cost is predicted.

    Args:
        tables: Number of tables, all with the same parameters.
        rows: Rows of each table.
        dim: Length of an embedding.
        state: Floats in a row's optimizer state.
        keys: Keys of a rank's batch in each table.
        exponent: Exponent of the keys' Zipf distribution: the frequency of the k-th most frequent
            key is proportional to `k ** -exponent`.
        hosts: Number of hosts.
        ranks: Number of ranks on each host.
        cores: Number of cores of each host.
        link: Bandwidth of a host's link, in Gbit/s.
        gradient_bytes: Bytes of one gradient value on the wire: 4, or 2 for bfloat16. Default 4.
        sharded: Whether each row is on one host. Default: every host has all rows.
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

    @property
    def of_table(self) -> TableStep:
        """Lookups of the step in one of its tables."""
        return TableStep(self.rows, self.dim, self.keys, self.hosts, self.ranks, self.exponent)

    def traffic(self) -> Traffic:
        """Returns the expected distinct keys, and received bytes of a host, of a table's step."""
        return traffic_of(self.of_table, gradient_bytes=self.gradient_bytes, sharded=self.sharded)


@dataclasses.dataclass(frozen=True)
class Costs:
    """Measured constants of a machine, in nanoseconds of one core; `step` is in seconds.

    Args:
        line: Time to copy a cache line of 64 bytes for a looked-up key.
        merged_key: Time of a leader to merge a distinct key of a rank or of another host.
        applied_line: Time of a leader to update a cache line of a row, its state or its index.
        byte: Time per byte received from other hosts, including the time to send as many bytes.
        far_row: Additional time to look up or update a row, each time that a host's tables double
            beyond 1 GiB, because larger memory has slower access.
        step: Fixed time of a step, in seconds.

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
        """Returns the constants that come with the package, measured with `scripts/bench costs`."""
        text = resources.files("tfhybrid.planner").joinpath("step_costs.json").read_text()
        return cls(**json.loads(text)["costs"])

    def terms(self) -> dict[str, float]:
        """Returns the constants by the names of the attributes."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class StepSeconds:
    """Time that tables add to a step, by resource.

    Args:
        tables: Seconds of lookups, merges and updates on the cores.
        link: Seconds of transfers on the host's link.
    """

    tables: float
    link: float

    @property
    def total(self) -> float:
        """The sum of both, in seconds: they do not overlap."""
        return self.tables + self.link


def amounts(step: PlannedStep) -> dict[str, float]:
    """Returns how often one host incurs each constant of `Costs` in a step.

    The work of the leader is scaled up, because it cannot use all cores of its host.

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
    of_row = lines + -(-step.state // _LINE) + 1  # plus a line of the index
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
    """Returns the leader's time for a task, divided by the time that all cores would take.

    Ranks share the cores. If there are more ranks than cores, waiting ranks leave a part of their
    cores to the leader. It has one thread, which then gets between `cores / ranks` and one core.
    """
    threads = max(1.0, step.cores // step.ranks)
    return math.sqrt(step.ranks * max(1.0, step.cores / threads))


def seconds_of(step: PlannedStep, costs: Costs) -> StepSeconds:
    """Predicts the time that tables add to a step, without work that overlaps with the model.

    Args:
        step: Parameters of the step.
        costs: Constants of the machine.
    """
    of = costs.terms()
    counted = {name: amount * of[name] for name, amount in amounts(step).items()}
    waited = counted.pop("step")
    link = step.tables * step.traffic().host_bytes * 8 / (step.link * 1e9)
    return StepSeconds(waited + 1e-9 * sum(counted.values()) / step.cores, link)
