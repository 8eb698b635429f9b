"""How many different keys a step has, and what they bring to a host; docs/several_hosts.md.

Keys are drawn from a Zipf distribution over the rows of a table, as those of logs nearly are.
"""

from __future__ import annotations

import dataclasses

import numpy as np

_PASS_KEY_BYTES = 13  # of a pass: key, the batch that wants it last, whether it has a row
_GROUPS = 2000  # of ranks in the distribution; each counts as if its keys were alike


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Of one step and one table.

    Args:
        rank_keys: Different keys of a rank.
        host_keys: Of a host.
        all_keys: Of all hosts.
        host_bytes: That come to a host from the others, by the leaner way; of a sharded table also
            keys that are asked for, and rows.
    """

    rank_keys: float
    host_keys: float
    all_keys: float
    host_bytes: float


@dataclasses.dataclass(frozen=True)
class FastTier:
    """What the passes of a host's ranks take for one table: each rank's present and next one.

    Args:
        rows: In them.
        bytes: Of shared memory.
    """

    rows: int
    bytes: int


def distinct_keys(rows: int, draws: float, exponent: float) -> float:
    """Returns how many different keys `draws` draws are expected to have.

    Args:
        rows: Keys that there are.
        draws: Their number.
        exponent: The k-th most frequent key comes in proportion to `k ** -exponent`; 0 is uniform.

    Example:

    >>> round(distinct_keys(10, 1000, 0.0))
    10
    """
    edges = np.unique(np.geomspace(1, rows + 1, _GROUPS).astype(np.int64))
    first, end = edges[:-1], edges[1:]
    count = end - first
    weight = ((first + end - 1) / 2.0) ** -exponent
    chance = weight / (weight * count).sum()
    # log1p keeps what a chance of 1e-9 is.
    return float((count * -np.expm1(draws * np.log1p(-np.minimum(chance, 1 - 1e-12)))).sum())


def traffic_of(
    rows: int,
    dim: int,
    keys_of_rank: int,
    hosts: int,
    ranks: int,
    *,
    exponent: float = 1.0,
    gradient_bytes: int = 4,
    sharded: bool = False,
) -> Traffic:
    """Returns what a step exchanges for a table.

    Args:
        rows: Of the table.
        dim: Of an embedding.
        keys_of_rank: Keys that a rank looks up in a step.
        hosts: Number of hosts.
        ranks: Of each host.
        exponent: As of `distinct_keys`.
        gradient_bytes: Of one number of a gradient on the wire: 4, or 2 for bfloat16.
        sharded: Whether each row lies on one host.
    """
    rank, host, union = (
        distinct_keys(rows, keys_of_rank * times, exponent) for times in (1, ranks, hosts * ranks)
    )
    message = 8 + 2 + gradient_bytes * dim
    if sharded:
        fetched = ranks * rank * (8 + 4 * dim)
        return Traffic(rank, host, union, (hosts - 1) / hosts * (fetched + host * message))
    gathered = (hosts - 1) * host * message
    reduced = (hosts - 1) / hosts * (host + union) * message
    return Traffic(rank, host, union, min(gathered, reduced))


def fast_tier_of(
    rows: int,
    dim: int,
    keys_of_rank: int,
    hosts: int,
    ranks: int,
    *,
    batches: int,
    exponent: float = 1.0,
    in_files: bool = False,
) -> FastTier:
    """Returns what passes take of a host, for a sharded table.

    Args:
        rows: Of the table.
        dim: Of an embedding.
        keys_of_rank: Keys that a rank looks up in a batch.
        hosts: Number of hosts.
        ranks: Of each host.
        batches: Of a pass; 0 without passes.
        exponent: As of `distinct_keys`.
        in_files: Whether rows lie in files: then those of a rank's own host are in its passes too.

    Example:

    >>> fast_tier_of(1000, 16, 5000, hosts=2, ranks=1, batches=4, exponent=0.0)
    FastTier(rows=1000, bytes=77000)
    """
    distinct = distinct_keys(rows, keys_of_rank * batches, exponent)
    elsewhere = 1.0 if in_files else (hosts - 1) / hosts
    in_passes = round(2 * ranks * distinct * elsewhere)
    return FastTier(in_passes, in_passes * (4 * dim + _PASS_KEY_BYTES))
