"""A trainer that adds one to an item's row for each row of data; it runs until it is killed."""

from __future__ import annotations

import itertools
import os
import sys

import numpy as np
import pytest

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.provider.lease_length import Load
from tfhybrid.stream.provider.work import GrantedWork, Request
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec
from tfhybrid.stream.weights.weight_update import WeightUpdate

SPEC = ModelSpec({"item": TableSpec(1)})


def update_of(work: GrantedWork, model: str, trainer: str) -> WeightUpdate:
    """Adds one to an item's row for each row of data."""
    keys, counts = np.unique(work.batch["item"].to_numpy(), return_counts=True)
    values = counts.astype(np.float32)[:, None]
    return work.update(model, trainer, 0, {"item": keys}, {"item": values})


def trains_line(pid: int) -> str:
    """Returns what a trainer says once an update of its own is in the weights."""
    return f"trainer-{pid} trains"


def main(config: str) -> None:
    settings = StreamSettings.read(config)
    name = f"trainer-{os.getpid()}"
    provider = settings.remote_provider(name)
    model = settings.remote_model("ads", name)
    model.open(SPEC, [])
    trains = False
    for number in itertools.count():
        request = Request(name, number, "ads", batch=8, load=Load(rows_per_second=50.0))
        try:
            found = provider.lease_encoded(request, 0.2)
            if found is None:
                continue
            work = found.granted(lambda *_: pytest.fail("The rows come with the lease"))
            model.apply_record(update_of(work, "ads", name).to_record())
            provider.finish("ads", work.queue, work.lease.fence)
            if not trains:
                trains = True
                sys.stdout.write(f"{trains_line(os.getpid())}\n")
                sys.stdout.flush()
        except LeaseRefusedError:
            continue  # the provider has given the rows to another trainer


if __name__ == "__main__":
    main(sys.argv[1])
