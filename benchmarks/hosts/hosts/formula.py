"""The bytes of table traffic that leave a host in a step, by arithmetic.

Of replicated tables each host sends what its ranks' gradients were merged to to every other host.
Of sharded ones it asks for and serves rows, and sends merged gradients to their owners
(docs/sharded_tables.md).
"""

from __future__ import annotations

import numpy as np

from benchmarks.step.step.workload import Batches, StepConfig

_STEPS = 8


def distinct_keys(config: StepConfig, hosts: int, ranks: int) -> tuple[float, float]:
    """Returns the distinct keys of a rank's batch and of all ranks of a host, means over steps."""
    size = hosts * ranks
    of_rank, of_host = [], []
    steps = zip(
        *(Batches(config, rank, size).measured(_STEPS) for rank in range(size)), strict=True
    )
    for batches in steps:
        ids = np.stack([keys for keys, _ in batches]).reshape(hosts, ranks, config.features, -1)
        for of_one in ids:
            of_rank += [sum(len(np.unique(keys)) for keys in batch) for batch in of_one]
            merged = of_one.swapaxes(0, 1).reshape(config.features, -1)
            of_host.append(sum(len(np.unique(keys)) for keys in merged))
    return float(np.mean(of_rank)), float(np.mean(of_host))


def bytes_per_step(config: StepConfig, hosts: int, ranks: int) -> dict[str, float]:
    """Returns what leaves a host with replicated and with sharded tables, and per merged key.

    Example:

    >>> told = bytes_per_step(StepConfig(batch=64, rows=100_000, ids="uniform"), hosts=2, ranks=1)
    >>> round(told["replicated_per_key"]), round(told["sharded_per_key"])
    (74, 73)
    """
    of_rank, of_host = distinct_keys(config, hosts, ranks)
    replicated = (hosts - 1) * of_host * (10 + 4 * config.dim)
    fetched = of_rank * ranks * (8 + 4 * config.dim)
    sharded = (hosts - 1) / hosts * (fetched + of_host * (10 + 4 * config.dim))
    return {
        "replicated": replicated,
        "sharded": sharded,
        "replicated_per_key": replicated / of_host,
        "sharded_per_key": sharded / of_host,
    }
