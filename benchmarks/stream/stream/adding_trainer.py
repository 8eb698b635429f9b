"""A trainer without TensorFlow: what the stream itself costs. For each row it adds one to a row."""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from tfhybrid.stream import Leases
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec


def main() -> None:
    """Adds until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("dim", type=int)
    parser.add_argument("--rate", type=float, help="rows/s at most")
    options = parser.parse_args()
    leases = Leases(os.environ["TFHYBRID_STREAM"], model=options.model, batch_size=4096)
    leases.open(ModelSpec({"item": TableSpec(options.dim)}), [])
    while True:
        leases.batch()
        begun = time.monotonic()
        work = leases.work
        assert work is not None
        keys, counts = np.unique(work.batch["item"].to_numpy(), return_counts=True)
        found, _ = leases.read({"item": keys})
        change = np.broadcast_to(counts[:, None].astype(np.float32), found["item"].shape)
        while not leases.trained():
            pass
        if options.rate is not None:
            time.sleep(max(begun + work.lease.rows / options.rate - time.monotonic(), 0.0))
        leases.send({"item": keys}, {"item": np.ascontiguousarray(change)}, [])


if __name__ == "__main__":
    main()
