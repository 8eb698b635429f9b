"""What each result file shows: a chart, and what it means."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

NAMES = {
    "bound": "bound: no table",
    "plain": "plain Horovod",
    "plain-keras3": "plain Horovod, Keras 3",
    "tfra": "TFRA 0.8.1",
    "dense": "dense variable",
    "gather": "bound: plain gather",
    "gather-huge": "bound: gather, huge pages",
    "tfhybrid-bfloat16": "tfhybrid, bfloat16",
}


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart of a page.

    Args:
        title: What was measured, and whether more is better.
        bars: The value of each side; those that begin with `tfhybrid` are ours.
        unit: How values are written, a format such as `{:,.0f} samples/s`.
        meaning: What to make of it.
        dots: Draws dots on a scale that begins near the lowest value, instead of bars from zero.
            The side `tfhybrid X` shares the line of `X, published`.
    """

    title: str
    bars: dict[str, float]
    unit: str
    meaning: str
    dots: bool = False


def _bars(summary: dict[str, Any], field: str) -> dict[str, float]:
    return {NAMES.get(side, side): row[field] for side, row in summary.items()}


def _step(result: dict[str, Any]) -> list[Chart]:
    tfhybrid = result["summary"]["tfhybrid"]
    return [
        Chart(
            "A training step on one host, 2 ranks (more is better)",
            _bars(result["summary"], "samples_per_second"),
            "{:,.0f} samples/s",
            f"{tfhybrid['to_better_peer']:.2f} times the better peer, {tfhybrid['to_bound']:.2f} "
            "of the same model without any table.",
        )
    ]


def _hosts(result: dict[str, Any]) -> list[Chart]:
    setting, tfhybrid = result["setting"], result["summary"]["tfhybrid"]
    return [
        Chart(
            f"A training step on {setting['hosts']} hosts of {setting['ranks']} ranks, a link of "
            f"{setting['rate']} (more is better)",
            _bars(result["summary"], "samples_per_second"),
            "{:,.0f} samples/s",
            f"{tfhybrid['to_better_peer']:.2f} times the better peer; it sends "
            f"{tfhybrid['sent_megabytes_per_step']} MB a step, plain Horovod "
            f"{result['summary']['plain']['sent_megabytes_per_step']} MB.",
        )
    ]


def _lookup(result: dict[str, Any]) -> list[Chart]:
    operations = {
        "lookup": ("Looking up", "The bound copies the same rows by address, without any key."),
        "update": ("Updating", "Adagrad on the distinct keys of a batch."),
        "create": ("Making rows for", "Keys that have none yet."),
    }
    return [
        Chart(
            f"{operations[name][0]} 65,536 keys in a table of {result['setting']['rows']:,} rows "
            "(less is better)",
            _bars(sides, "milliseconds"),
            "{:.2f} ms",
            operations[name][1],
        )
        for name, sides in result["summary"].items()
        if name in operations
    ]


def _memory(result: dict[str, Any]) -> list[Chart]:
    return [
        Chart(
            f"Memory of {result['setting']['ranks']} ranks for a table of 1 GiB with Adagrad (less "
            "is better)",
            {run["side"]: run["pss_growth"] / 2**30 for run in result["runs"]},
            "{:.2f} GiB",
            "One copy for all ranks of a host; summed PSS.",
        )
    ]


def _checkpoint(result: dict[str, Any]) -> list[Chart]:
    rounds = result["rounds"]
    median = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    return [
        Chart(
            f"Saving a table of {median['bytes'] / 1e9:.1f} GB while training goes on (more is "
            "better)",
            {
                "bound: dd of as many bytes": median["dd_mb_per_second"],
                "tfhybrid": median["save_mb_per_second"],
            },
            "{:,.0f} MB/s",
            f"A step takes {median['step_ms_median']:.0f} ms, "
            f"{median['step_ms_median_while_saving']:.0f} ms while the table is written.",
        )
    ]


def _restart(result: dict[str, Any]) -> list[Chart]:
    seconds = {
        side: statistics.median(run["seconds"] for run in result[side])
        for side in ("checkpoint", "memory")
    }
    return [
        Chart(
            "Going on after a crash with 2 GB of tables (less is better)",
            {
                "from a checkpoint": seconds["checkpoint"],
                "tfhybrid, from memory": seconds["memory"],
            },
            "{:.1f} s",
            "From memory it goes on at the very step, and loses none.",
        )
    ]


def _export(result: dict[str, Any]) -> list[Chart]:
    latencies = result["summary"]["1"]["milliseconds"]
    return [
        Chart(
            "A request to an exported model in stock TensorFlow (less is better)",
            {
                f"tfhybrid, {keys.replace('_', ' ')}, {quantile}": row[quantile]
                for keys, row in latencies.items()
                for quantile in ("p50", "p99")
            },
            "{:.1f} ms",
            "Without custom operations; unseen keys read the value that training reads.",
        )
    ]


def _leaderboard(result: dict[str, Any]) -> list[Chart]:
    bars = {}
    for model, published in result["published"].items():
        bars[f"{model}, published"] = published["auc"]
        bars[f"tfhybrid {model}"] = statistics.mean(
            run["auc"] for run in result["runs"] if run["side"] == model
        )
    return [
        Chart(
            f"Test AUC on Frappe_x1, {result['ranks']} ranks (more is better)",
            bars,
            "{:.4f}",
            "Means of the seeds; chosen on the validation split alone. Train has all positives of "
            "the public split, and negatives drawn anew by its rule.",
            dots=True,
        )
    ]


def _readers(result: dict[str, Any]) -> list[Chart]:
    bars = {}
    for side, speeds in result["speeds"].items():
        peer = ", t" in side  # tf.data, tensorflow-io
        bars[side if peer else f"tfhybrid {side}"] = statistics.median(speeds)
    return [
        Chart(
            "Reading samples of 39 features, shuffled, on 2 cores (more is better)",
            bars,
            "{:,.0f} samples/s",
            "One process and no model; the same samples in every format.",
        )
    ]


CHARTS: dict[str, Callable[[dict[str, Any]], list[Chart]]] = {
    "step": _step,
    "hosts": _hosts,
    "lookup": _lookup,
    "memory": _memory,
    "checkpoint": _checkpoint,
    "restart": _restart,
    "export": _export,
    "leaderboard": _leaderboard,
    "readers": _readers,
}
