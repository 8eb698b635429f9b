"""Prediction of a step's number of distinct keys and of its traffic; see docs/several_hosts.md.

Keys are drawn from a Zipf distribution over a table's rows, which is close to that of real logs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

_PASS_KEY_BYTES = 13  # bytes per key of a pass: key, last batch with the key, whether it has a row
_GROUPS = 2000  # groups of keys; all keys of a group count as equally frequent


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The traffic of one step for one table.

    Args:
        rank_keys: Expected number of distinct keys of a rank.
        host_keys: Expected number of distinct keys of a host.
        all_keys: Expected number of distinct keys of all hosts.
        host_bytes: Bytes that a host receives from the others with the cheaper exchange. For a
            sharded table they include requested keys and rows.
    """

    rank_keys: float
    host_keys: float
    all_keys: float
    host_bytes: float


@dataclasses.dataclass(frozen=True)
class TableStep:
    """Lookups of a step in one table, on all ranks.

    Args:
        rows: Number of rows of the table.
        dim: Length of an embedding.
        keys: Number of keys that a rank looks up in a step.
        hosts: Number of hosts.
        ranks: Number of ranks on each host.
        exponent: Exponent of the keys' Zipf distribution; see `distinct_keys`. Default 1.
    """

    rows: int
    dim: int
    keys: int
    hosts: int
    ranks: int
    exponent: float = 1.0


@dataclasses.dataclass(frozen=True)
class FastTier:
    """Size of the passes of a host's ranks for one table: the current and next pass of each rank.

    Args:
        rows: Number of rows in the passes.
        bytes: Shared memory of the passes.
    """

    rows: int
    bytes: int


def distinct_keys(rows: int, draws: float, exponent: float) -> float:
    """Returns the expected number of distinct keys in `draws` draws.

    Args:
        rows: Number of existing keys.
        draws: Number of draws.
        exponent: Exponent of the Zipf distribution: the frequency of the k-th most frequent key is
            proportional to `k ** -exponent`; 0 for equal frequencies.

    Example:

    >>> round(distinct_keys(10, 1000, 0.0))
    10
    """
    edges = np.unique(np.geomspace(1, rows + 1, _GROUPS).astype(np.int64))
    first, end = edges[:-1], edges[1:]
    count = end - first
    weight = ((first + end - 1) / 2.0) ** -exponent
    chance = weight / (weight * count).sum()
    # log1p keeps the precision of probabilities near 1e-9.
    return float((count * -np.expm1(draws * np.log1p(-np.minimum(chance, 1 - 1e-12)))).sum())


def traffic_of(step: TableStep, *, gradient_bytes: int = 4, sharded: bool = False) -> Traffic:
    """Predicts a step's distinct keys and traffic for one table.

    Args:
        step: Lookups of the step.
        gradient_bytes: Bytes of a gradient's value on the wire: 4, or 2 for bfloat16.
        sharded: Whether each row is on one host.

    Returns:
        Distinct keys of a rank, of a host and of all hosts, and bytes that a host receives.
    """
    hosts, ranks = step.hosts, step.ranks
    rank, host, union = (
        distinct_keys(step.rows, step.keys * times, step.exponent)
        for times in (1, ranks, hosts * ranks)
    )
    message = 8 + 2 + gradient_bytes * step.dim
    if sharded:
        fetched = ranks * rank * (8 + 4 * step.dim)
        return Traffic(rank, host, union, (hosts - 1) / hosts * (fetched + host * message))
    gathered = (hosts - 1) * host * message
    reduced = (hosts - 1) / hosts * (host + union) * message
    return Traffic(rank, host, union, min(gathered, reduced))


def fast_tier_of(step: TableStep, *, batches: int, in_files: bool = False) -> FastTier:
    """Predicts the size of a host's passes for one sharded table.

    Args:
        step: Lookups of a batch.
        batches: Number of batches of a pass; 0 without passes.
        in_files: Whether rows are in files. Passes then contain rows of the own host too.

    Example:

    >>> step = TableStep(rows=1000, dim=16, keys=5000, hosts=2, ranks=1, exponent=0.0)
    >>> fast_tier_of(step, batches=4)
    FastTier(rows=1000, bytes=77000)
    """
    distinct = distinct_keys(step.rows, step.keys * batches, step.exponent)
    elsewhere = 1.0 if in_files else (step.hosts - 1) / step.hosts
    in_passes = round(2 * step.ranks * distinct * elsewhere)
    return FastTier(in_passes, in_passes * (4 * step.dim + _PASS_KEY_BYTES))
