"""Trains the model of model.py on the rows of a stream, until it is stopped.

`tfhybrid stream run stream.yaml` starts as many of these as stream.yaml says. The weights begin
with the newest checkpoint of train.py, or of `tfhybrid train model.yaml`.
"""

from __future__ import annotations

import os

import tfhybrid
from model import FEATURES, LABEL, SEED, build


def main() -> None:
    """Trains what the provider hands out."""
    tfhybrid.init(seed=SEED)
    leases = tfhybrid.stream.Leases(
        os.environ["TFHYBRID_STREAM"], model="click-model", batch_size=128
    )
    online = tfhybrid.stream.Online(
        leases, tables={name: name for name in FEATURES}, checkpoint="output/checkpoints"
    )
    rows = tfhybrid.stream.dataset(leases, features=FEATURES, label=LABEL)
    build().fit(rows, callbacks=[online], shuffle=False, verbose=0)


if __name__ == "__main__":
    main()
