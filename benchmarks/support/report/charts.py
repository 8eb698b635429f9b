"""What each result file shows: a chart, and what it means."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

from tfhybrid.planner.step_costs import Costs, PlannedStep, seconds_of

NAMES = {
    "bound": "bound: no table",
    "bound-torch": "bound, PyTorch",
    "plain": "plain Horovod",
    "plain-keras3": "plain Horovod, Keras 3",
    "tfra": "TFRA 0.8.1",
    "torchrec": "TorchRec 1.9.2",
    "torchrec-rows": "TorchRec, row-wise",
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
        curves: Instead of bars: the values of each side over `over`, on scales of powers.
        over: What the curves go over.
        dots: Draws dots on a scale that begins near the lowest value, instead of bars from zero.
            The side `tfhybrid X` shares the line of `X, published`.
        lanes: Instead of bars: the milliseconds at which each of them begins and ends something.
    """

    title: str
    bars: dict[str, float]
    unit: str
    meaning: str
    dots: bool = False
    curves: dict[str, dict[float, float]] = dataclasses.field(default_factory=dict)
    over: str = ""
    lanes: dict[str, list[tuple[float, float]]] = dataclasses.field(default_factory=dict)


def _bars(summary: dict[str, Any], field: str) -> dict[str, float]:
    return {NAMES.get(side, side): row[field] for side, row in summary.items()}


def _step(result: dict[str, Any]) -> list[Chart]:
    summary = result["summary"]
    tfhybrid, torchrec = summary["tfhybrid"], summary["torchrec"]
    to_torchrec = tfhybrid["samples_per_second"] / torchrec["samples_per_second"]
    return [
        Chart(
            "A training step on one host, 2 ranks (more is better)",
            _bars(summary, "samples_per_second"),
            "{:,.0f} samples/s",
            f"{tfhybrid['to_better_peer']:.2f} times the better peer, {to_torchrec:.2f} times "
            f"TorchRec, {tfhybrid['to_bound']:.2f} of the same model without any table.",
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


def _sharding(result: dict[str, Any]) -> list[Chart]:
    summaries = {int(hosts): of["summary"] for hosts, of in result["by_hosts"].items()}
    most = summaries[max(summaries)]
    names = {
        **{"bound": "bound: no table", "tfra": "TFRA 0.8.1, all-to-all"},
        **{"tfhybrid": "tfhybrid replicated", "tfhybrid-sharded": "tfhybrid sharded"},
        **{"tfhybrid-pass": "tfhybrid sharded, passes of 2 batches"},
    }
    speed = {
        name: {hosts: of[side]["samples_per_second"] for hosts, of in summaries.items()}
        for side, name in names.items()
    }
    replicated, sharded = most["tfhybrid"], most["tfhybrid-sharded"]
    ratio = sharded["samples_per_second"] / replicated["samples_per_second"]
    return [
        Chart(
            "A training step on several hosts of one rank, a link of 1 Gbit/s; all hosts share "
            "two cores (more is better)",
            {name: curve[max(summaries)] for name, curve in speed.items()},
            "{:,.0f} samples/s",
            f"On {max(summaries)} hosts, sharded tables train {ratio:.2f} times as fast as "
            f"replicated ones and {sharded['to_better_peer']:.2f} times as fast as TFRA. A host "
            f"sends {sharded['sent_megabytes_per_step']} MB a step instead of "
            f"{replicated['sent_megabytes_per_step']} MB.",
            curves=speed,
            over="hosts",
        )
    ]


def _timeline(result: dict[str, Any]) -> list[Chart]:
    charts = []
    for name, picture in result["pictures"].items():
        lanes: dict[str, list[tuple[float, float]]] = {}
        for span in sorted(picture["shown"], key=lambda span: (span["rank"], span["begin"])):
            lane = f"rank {span['rank']}: {span['phase']}"
            lanes.setdefault(lane, []).append((span["begin"], span["end"]))
        meaning = f"A step takes {picture['step_milliseconds']:.1f} ms."
        share = picture.get("share_of_fetching_under_computing")
        if share is not None:
            meaning += f" {share:.0%} of the time in which rows of passes travel, no rank waits."
        charts.append(Chart(f"Three steps in time, {name}", {}, "{:,.0f} ms", meaning, lanes=lanes))
    return charts


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
            "Resuming after a crash with 2 GB of tables (less is better)",
            {
                "from a checkpoint": seconds["checkpoint"],
                "tfhybrid, from memory": seconds["memory"],
            },
            "{:.1f} s",
            "From memory it resumes at the very step, and loses none.",
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
    def beside_published(metric: str) -> dict[str, float]:
        bars = {}
        for model, published in result["published"].items():
            runs = [run[metric] for run in result["runs"] if run["side"] == model]
            bars[f"{model}, published"] = published[metric]
            bars[f"tfhybrid {model}"] = statistics.mean(runs)
        return bars

    return [
        Chart(
            f"Test AUC on Frappe_x1, {result['ranks']} ranks (more is better)",
            beside_published("auc"),
            "{:.4f}",
            "Means of the seeds; chosen on the validation split alone. Train has all positives of "
            "the public split, and negatives drawn anew by its rule.",
            dots=True,
        ),
        Chart(
            f"Test log loss on Frappe_x1, {result['ranks']} ranks (less is better)",
            beside_published("log_loss"),
            "{:.4f}",
            "The same runs.",
            dots=True,
        ),
    ]


def _time_to_auc(result: dict[str, Any]) -> list[Chart]:
    bars, meanings = {}, []
    for target in next(iter(result["summary"].values())):
        for side, targets in result["summary"].items():
            row, name = targets[target], f"{NAMES.get(side, side)}, {target}"
            seconds, samples = row["seconds"], row["samples"]["median"]
            if seconds["median"] is None:
                meanings.append(f"{name}: {row['reached']} of {row['runs']} seeds reach it.")
                continue
            bars[name] = seconds["median"]
            most = "never" if seconds["most"] is None else f"{seconds['most']:.1f} s"
            meanings.append(f"{name}: {seconds['least']:.1f} s to {most}, {samples:,.0f} samples.")
    rates = ", ".join(f"{NAMES.get(side, side)} {rate:g}" for side, rate in result["rates"].items())
    return [
        Chart(
            "Seconds of training until DeepFM first has a test AUC on Frappe_x1, "
            f"{result['setting']['ranks']} ranks (less is better)",
            bars,
            "{:.1f} s",
            f"Medians of {len(result['setting']['seeds'])} seeds; extremes and median samples: "
            f"{' '.join(meanings)} Learning rates, chosen on the validation split: {rates}.",
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


def _costs(result: dict[str, Any]) -> list[Chart]:
    costs = Costs(**result["costs"])
    of_one = PlannedStep(1, 10**8, 16, 16, 106_496, 1.2, hosts=1, ranks=8, cores=8, link=10.0)
    hosts = [1, 2, 4, 8, 16, 32, 64]

    def added(**changes: Any) -> dict[float, float]:
        steps = [dataclasses.replace(of_one, hosts=number, **changes) for number in hosts]
        return {step.hosts: 1e3 * seconds_of(step, costs).total for step in steps}

    curves = {
        "tfhybrid replicated, 10^8 rows": added(),
        "tfhybrid sharded, 10^8 rows": added(sharded=True),
        "tfhybrid sharded, 10^10 rows": added(sharded=True, rows=10**10),
        "tfhybrid sharded, 10^10 rows, uniform": added(sharded=True, rows=10**10, exponent=0.0),
    }
    missed = sorted(
        abs(cell["model_seconds"] / cell["seconds"] - 1)
        for cell in result["cells"]
        if cell["held_back"]
    )
    return [
        Chart(
            "What tables add to a step by the cost model: 8 ranks of 4,096 samples and 8 cores a "
            "host, 26 features, dim 16, Adagrad, 10 Gbit/s (less is better)",
            {name: curve[hosts[-1]] for name, curve in curves.items()},
            "{:,.1f} ms",
            f"Extrapolated from 1 to 4 hosts. Of {len(missed)} measured cells that the constants "
            f"have not seen, the model misses half by at most {statistics.median(missed):.0%}, and "
            f"the worst by {missed[-1]:.0%}.",
            curves=curves,
            over="hosts",
        )
    ]


CHARTS: dict[str, Callable[[dict[str, Any]], list[Chart]]] = {
    "step": _step,
    "hosts": _hosts,
    "sharding": _sharding,
    "timeline": _timeline,
    "lookup": _lookup,
    "memory": _memory,
    "checkpoint": _checkpoint,
    "restart": _restart,
    "export": _export,
    "leaderboard": _leaderboard,
    "time_to_auc": _time_to_auc,
    "readers": _readers,
    "costs": _costs,
}
