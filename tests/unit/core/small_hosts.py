"""Trains a sharded table on hosts with little shared memory; prints its rows and bytes.

Usage: python -m tests.unit.core.small_hosts DIRECTORY HOSTS ROWS
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.support.core.sharded_tables import RATE, SHARDED, TABLES, opened
from tests.unit.core.user_table import DIM, NAME, opened_updates, reference, stats_of

STEP_KEYS = 10_000


def main() -> None:
    directory, hosts, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    nothing = np.empty(0, np.int64), np.empty((0, TABLES["item"]), np.float32)
    gradient = np.linspace(-1, 1, DIM, dtype=np.float32)
    with opened(directory, hosts, [SHARDED] * 2) as engines:
        updates = opened_updates(engines)
        for first in range(0, rows, STEP_KEYS):
            for host, update in enumerate(updates):
                keys = np.arange(first, min(first + STEP_KEYS, rows))[host::hosts]
                gradients = np.tile(gradient, (len(keys), 1))
                update.post(
                    [nothing[0], keys], [nothing[1], gradients], [RATE] * 2, samples=len(keys)
                )
            for engine in engines:
                for name in TABLES:
                    engine.wait(name)
        some = np.arange(0, rows, rows // 100)
        table = reference()
        table.update({int(key): gradient for key in some})
        for engine in engines:
            found = engine.lookup(NAME, DIM, some)
            np.testing.assert_allclose(found, table.lookup(some), rtol=2e-5, atol=1e-6)
        stats = [stats_of(engine) for engine in engines]
        sys.stdout.write(f"{sum(s.rows for s in stats)} {sum(s.bytes for s in stats)}\n")


if __name__ == "__main__":
    main()
