"""A trainer that adds one to an item's row for each row of data; it runs until it is killed."""

from __future__ import annotations

import itertools
import os
import sys

import numpy as np

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.lease_length import Load
from tfhybrid.stream.model_spec import ModelSpec, TableSpec
from tfhybrid.stream.provider import Request
from tfhybrid.stream.provider_calls import RemoteProvider
from tfhybrid.stream.remote import Remote
from tfhybrid.stream.settings import StreamSettings
from tfhybrid.stream.weight_update import WeightUpdate

SPEC = ModelSpec({"item": TableSpec(1)})


def main(config: str) -> None:
    settings = StreamSettings.read(config)
    name = f"trainer-{os.getpid()}"
    provider = RemoteProvider(Remote(settings.provider, settings.token, name, "provider"))
    model = settings.remote_model("ads", name)
    model.open(SPEC, [])
    for number in itertools.count():
        request = Request(name, number, "ads", batch=8, load=Load(rows_per_second=50.0))
        try:
            work = provider.lease(request, wait_seconds=0.2)
            if work is None:
                continue
            keys, counts = np.unique(work.batch["item"].to_numpy(), return_counts=True)
            lease = work.lease
            model.apply(
                WeightUpdate(
                    model="ads",
                    queue=work.queue,
                    fence=lease.fence,
                    begin=lease.begin,
                    end=lease.end,
                    rows=lease.rows,
                    trainer=name,
                    version=0,
                    keys={"item": keys},
                    values={"item": counts.astype(np.float32)[:, None]},
                )
            )
            provider.finish("ads", work.queue, lease.fence)
        except LeaseRefusedError:
            continue  # the provider has given the rows to another trainer


if __name__ == "__main__":
    main(sys.argv[1])
