"""What a step waits for: copies, kernels and ops of a few steps, and the phases of the host.

python -m benchmarks.step.trace [--traced 3] [--batch 16384] [--ids zipf] [--gather-on device] ...

Takes the options of tfhybrid's side of the step benchmark, and runs it on one rank.
"""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

import tensorflow as tf
from rich.console import Console
from rich.table import Table

import tfhybrid
from benchmarks.step.step import model, tfhybrid_step
from benchmarks.step.trace.profile import Profile, read_profile
from benchmarks.support import launch
from tfhybrid.core import native

LOGGER = logging.getLogger("benchmarks.step.trace")
WARM_UP = 10
SHOWN = 12  # rows of a table


def main() -> None:
    """Runs, prints and writes `benchmarks/results/trace.json`."""
    parser = tfhybrid_step.parser()
    parser.description = __doc__
    parser.add_argument("--traced", type=int, default=3, help="number of steps")
    parser.add_argument("--name", default="trace", help="of the result file")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = model.config_of(options)
    tfhybrid.init()
    network, collection = tfhybrid_step.build_model(config, options)
    step = tfhybrid_step.make_step(network, options)
    prepared = model.filled(config, step, tfhybrid_step.feed, WARM_UP + options.traced)
    left = iter(tfhybrid_step.ahead_of(options, collection)(prepared))
    for _ in range(WARM_UP):
        loss = step(*next(left))
    loss.numpy()
    before, started = native.phase_times(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(options.traced):
                loss = step(*next(left))
            loss.numpy()
        seconds = time.perf_counter() - started
        phases = {name: after - before[name] for name, after in native.phase_times().items()}
        profile = read_profile(Path(folder))
    result = {
        "setting": {"side": tfhybrid_step.name_of(options), **vars(config)},
        "milliseconds": 1e3 * seconds / options.traced,
        "device_milliseconds": 1e-3 * profile.busy_microseconds / options.traced,
        "phases": {n: 1e3 * spent / options.traced for n, spent in phases.items() if spent > 0},
        "copies": [vars(copy) for copy in profile.copies],
        "kernels": [vars(kernel) for kernel in profile.kernels],
        "ops": [vars(op) for op in profile.ops[: 4 * SHOWN]],
    }
    show(result, profile, options.traced)
    path = launch.write_result(options.name, result)
    LOGGER.info("%s", path.relative_to(launch.ROOT))


def show(result: dict, profile: Profile, steps: int) -> None:
    """Prints what a step waits for, per step."""
    console = Console()
    console.print(
        f"{result['setting']['side']}: {result['milliseconds']:.1f} ms a step (profiled), "
        f"the device busy for {result['device_milliseconds']:.1f} ms"
    )
    phases = Table("phase of the host", "ms of its threads")
    for name, spent in sorted(result["phases"].items(), key=lambda phase: -phase[1]):
        phases.add_row(name, f"{spent:.2f}")
    copies = Table("copy", "memory of the host", "bytes", "times", "ms")
    for copy in profile.copies[:SHOWN]:
        copies.add_row(
            copy.direction,
            copy.memory,
            f"{copy.bytes:,}",
            f"{copy.count / steps:.1f}",
            f"{1e-3 * copy.microseconds / steps:.3f}",
        )
    console.print(phases, copies)
    for title, spans in (("kernel", profile.kernels), ("op of the host", profile.ops)):
        table = Table(title, "times", "ms")
        for span in spans[:SHOWN]:
            milliseconds = 1e-3 * span.microseconds / steps
            table.add_row(span.name, f"{span.count / steps:.1f}", f"{milliseconds:.3f}")
        console.print(table)


if __name__ == "__main__":
    main()
