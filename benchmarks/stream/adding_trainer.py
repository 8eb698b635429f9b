"""A trainer without TensorFlow: what the stream itself costs. For each row it adds one to a row."""

from __future__ import annotations

import os
import sys

import numpy as np

from tfhybrid.stream import Leases
from tfhybrid.stream.model_spec import ModelSpec, TableSpec


def main(model: str, dim: int) -> None:
    """Adds until it is stopped."""
    leases = Leases(os.environ["TFHYBRID_STREAM"], model=model, batch_size=4096)
    leases.open(ModelSpec({"item": TableSpec(dim)}), [])
    while True:
        leases.batch()
        assert leases.work is not None
        keys, counts = np.unique(leases.work.batch["item"].to_numpy(), return_counts=True)
        found, _ = leases.read({"item": keys})
        change = np.broadcast_to(counts[:, None].astype(np.float32), found["item"].shape)
        while not leases.trained():
            pass
        leases.send({"item": keys}, {"item": np.ascontiguousarray(change)}, [])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
