"""A rank of the ads benchmark: fills the tables, then times a step and its cuts."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import tfhybrid
from benchmarks.roles.ads.model import AdsModel, PackedKeys
from benchmarks.roles.ads.workload import AdsConfig, Batches, parse_config

FILL_KEYS = 5000  # of each table, rank and step, before folding
STEPS = 4  # of a window
WARM_UP_ROUNDS = 1


def fill(config: AdsConfig, model: AdsModel) -> None:
    """Makes all rows of all tables."""
    per_rank = FILL_KEYS * config.fold
    rows = config.rows_per_feature + 1
    fill_rows = tf.function(model.fill, autograph=False)
    for start in range(0, rows, per_rank * tfhybrid.size()):
        begin = start + per_rank * tfhybrid.rank()
        fill_rows(tf.range(begin, begin + per_rank, dtype=tf.int64) % rows)


class Cuts:
    """The cuts of a step as functions of one batch.

    Args:
        config: the workload.
        model: the model.
    """

    def __init__(self, config: AdsConfig, model: AdsModel) -> None:
        batches = Batches(config, tfhybrid.rank())
        self._prepared = [tuple(map(tf.constant, batches.next())) for _ in range(STEPS)]
        self._one = tuple(keys[:, :1, :1] for keys in self._prepared[0])
        labels = tf.cast(tf.random.uniform((config.batch, 1)) < 0.5, tf.float32)
        compiled = {
            name: tf.function(getattr(model, name), autograph=False)
            for name in ("lookup", "forward", "backward", "sparse_step", "step")
        }
        self._lookup = compiled.pop("lookup")
        self.functions: dict[str, Callable[[PackedKeys], object]] = {
            "lookup_of_one": lambda keys: self._lookup(self._one),
            "lookup": self._lookup,
        }
        for name, function in compiled.items():
            self.functions[name] = functools.partial(function, labels=labels)

    def time(self, name: str) -> tuple[float, float]:
        """Returns the milliseconds of one of `STEPS` calls: clock, and this rank's processors."""
        tfhybrid.distributed.barrier()
        start, processor_start = time.perf_counter(), time.process_time()
        for keys in self._prepared:
            self.functions[name](keys)
        # An update may still be under way when a step returns; a lookup waits for it.
        self._lookup(self._one)
        elapsed = (time.perf_counter() - start, time.process_time() - processor_start)
        return tuple(1e3 * seconds / STEPS for seconds in elapsed)


def measure(config: AdsConfig, cuts: Cuts) -> dict[str, tuple[float, float]]:
    """Returns the median milliseconds of each cut over the rounds, in which they take turns."""
    times = {name: [] for name in cuts.functions}
    for _ in range(WARM_UP_ROUNDS + config.rounds):
        for name, windows in times.items():
            windows.append(cuts.time(name))
    return {
        name: tuple(np.median(windows[WARM_UP_ROUNDS:], axis=0)) for name, windows in times.items()
    }


def main() -> None:
    """Runs on every rank; rank 0 prints one JSON line."""
    config = parse_config(__doc__)
    tfhybrid.init()
    model = AdsModel(config)
    fill(config, model)
    times = measure(config, Cuts(config, model))
    ranks = tfhybrid.distributed.allgather_object(times)
    if tfhybrid.rank() == 0:
        stats = [table.stats() for table in model.collection.tables.values()]
        result = {
            "ranks": len(ranks),
            "features": len(config.layout),
            "samples": config.batch * len(ranks),
            "keys": config.keys_per_sample * config.batch * len(ranks),
            "floats": config.floats_per_sample * config.batch * len(ranks),
            "rows": sum(table.rows for table in stats),
            "table_bytes": sum(table.bytes for table in stats),
            # By the clock of the slowest rank, and of the processors of all.
            "milliseconds": {cut: max(rank[cut][0] for rank in ranks) for cut in times},
            "processor_milliseconds": {cut: sum(rank[cut][1] for rank in ranks) for cut in times},
        }
        print(json.dumps({"side": "ads"} | result), flush=True)


if __name__ == "__main__":
    main()
