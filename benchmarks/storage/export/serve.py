"""The serving side: loads a version in stock TensorFlow, without tfhybrid, and answers requests."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.hosts.memory.footprint import pss_bytes
from benchmarks.storage.export import workload as work
from benchmarks.storage.export.peak_growth import PeakGrowth

WARM_UP = 50
UNSEEN = {"held": 0.0, "unseen_5_percent": 0.05}


def make_requests(
    workload: work.Workload, unseen: float, count: int
) -> list[dict[str, np.ndarray]]:
    """Returns requests of random keys, a share of which has no row; no user repeats his keys."""
    rng = np.random.default_rng(1)
    size = (workload.candidates, 1)
    requests = []
    for _ in range(count):
        request = {}
        for number, name in enumerate(work.names(workload)):
            ids = rng.integers(0, workload.rows_each, size)
            ids += workload.rows_each * (rng.random(size) < unseen)
            request[name] = work.keys(number, ids)
        requests.append(request)
    return requests


def time_requests(signature: Any, workload: work.Workload, unseen: float) -> dict[str, float]:
    """Returns milliseconds of a request: arrays in, array out, one request after the other."""
    milliseconds, processor = [], []
    for request in make_requests(workload, unseen, WARM_UP + workload.requests):
        started, processor_started = time.perf_counter(), time.process_time()
        tensors = {name: tf.constant(keys) for name, keys in request.items()}
        answer = signature(**tensors)["output_0"].numpy()
        milliseconds.append(1000 * (time.perf_counter() - started))
        processor.append(1000 * (time.process_time() - processor_started))
        assert answer.shape == (workload.candidates, 1)
    quantiles = statistics.quantiles(milliseconds[WARM_UP:], n=100)
    return {
        "p50": round(quantiles[49], 2),
        "p99": round(quantiles[98], 2),
        "max": round(max(milliseconds[WARM_UP:]), 2),
        # Of all threads: other load on the machine disturbs it less than the wall time.
        "processor_p50": round(statistics.median(processor[WARM_UP:]), 2),
    }


def main() -> None:
    """Loads once and reports time, memory and latencies."""
    workload, folder = work.parse(__doc__)
    tf.constant(0)  # starts TensorFlow
    before = pss_bytes()
    growth = PeakGrowth()
    started = time.perf_counter()
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]
    seconds = time.perf_counter() - started
    peak_growth = growth.stop()
    after = pss_bytes()
    latencies = {name: time_requests(signature, workload, share) for name, share in UNSEEN.items()}
    result = {
        "seconds_to_load": round(seconds, 2),
        "pss_before": before,
        "pss_growth": after - before,
        "pss_growth_after_requests": pss_bytes() - before,
        "growth_to_payload": round((after - before) / workload.payload_bytes, 3),
        "peak_growth_to_payload": round(peak_growth / workload.payload_bytes, 3),
        "milliseconds": latencies,
    }
    assert not {"tfhybrid", "horovod"} & set(sys.modules)
    work.report(f"serve {folder.name}", result)


if __name__ == "__main__":
    main()
