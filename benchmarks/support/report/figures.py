"""The figures that pages quote, by name, as text: each is computed from a file of results.

`step.tfhybrid` comes from `results/step.json`. `pages.py` puts figures into the pages.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.support.launch import RESULTS

# A figure of a result: its name within the result, and its text.
Figure = tuple[str, str]


@functools.cache
def figures() -> dict[str, str]:
    """Returns the text of every figure by its name."""
    found = {}
    for result, figures_of in _FIGURES.items():
        content = json.loads((RESULTS / f"{result}.json").read_text())
        found |= {f"{result}.{name}": text for name, text in figures_of(content)}
    return found


def _steps(result: dict[str, Any]) -> Iterator[Figure]:
    yield from _sides(result["summary"])


def _step(result: dict[str, Any]) -> Iterator[Figure]:
    yield from _steps(result)
    speed = {side: row["samples_per_second"] for side, row in result["summary"].items()}
    yield "torchrec.to_bound-torch", f"{speed['torchrec'] / speed['bound-torch']:.2f}"
    yield "tfhybrid.to_torchrec", f"{speed['tfhybrid'] / speed['torchrec']:.2f}"


def _sides(summary: dict[str, Any]) -> Iterator[Figure]:
    for side, row in summary.items():
        yield side, f"{row['samples_per_second']:,}"
        yield f"{side}.milliseconds", f"{row['milliseconds_per_step']:.0f}"
        yield f"{side}.to_bound", f"{row['to_bound']:.2f}"
        yield f"{side}.percent_of_bound", f"{100 * row['to_bound']:.0f}"
        if row["to_better_peer"]:
            yield f"{side}.to_better_peer", f"{row['to_better_peer']:.2f}"
        if "sent_megabytes_per_step" in row:
            yield f"{side}.megabytes", f"{row['sent_megabytes_per_step']:.2f}"


def _sharding(result: dict[str, Any]) -> Iterator[Figure]:
    for hosts, of in result["by_hosts"].items():
        summary = of["summary"]
        for name, text in _sides(summary):
            yield f"{hosts}.{name}", text
        for side, row in summary.items():
            yield f"{hosts}.{side}.hundreds", _rounded(row["samples_per_second"], 100)
        replicated, sharded = summary["tfhybrid"], summary["tfhybrid-sharded"]
        ratio = sharded["samples_per_second"] / replicated["samples_per_second"]
        yield f"{hosts}.tfhybrid-sharded.to_replicated", f"{ratio:.2f}"


def _memory(result: dict[str, Any]) -> Iterator[Figure]:
    runs = {run["side"]: run for run in result["runs"]}
    names = {"plain": "plain Horovod", "torchrec": "TorchRec", "tfhybrid": "tfhybrid"}
    growth = {name: runs[side]["pss_growth"] for name, side in names.items()}
    for name, grown in growth.items():
        yield name, f"{grown / 2**30:.2f}"
    yield "index", f"{runs['tfhybrid']['index_bytes'] / 2**30:.2f}"
    yield "index_bytes_per_key", f"{runs['tfhybrid']['index_bytes_per_key']:.0f}"
    yield "saved_percent", f"{100 * (1 - growth['tfhybrid'] / growth['plain']):.0f}"


def _lookup(result: dict[str, Any]) -> Iterator[Figure]:
    for operation, sides in result["summary"].items():
        for side, row in sides.items():
            yield f"{operation}.{side}", _significant(row["milliseconds"], 3)


def _lists(result: dict[str, Any]) -> Iterator[Figure]:
    for network, of in result["networks"].items():
        yield f"{network}.ratio", f"{of['ratio']:.1f}"


def _readers(result: dict[str, Any]) -> Iterator[Figure]:
    names = {
        **{"Parquet": "parquet", "Parquet, tensorflow-io": "parquet.tensorflow-io"},
        **{"TFRecord": "tfrecord", "TFRecord, tf.data": "tfrecord.tf-data"},
        **{"Criteo": "criteo", "Criteo, tf.data": "criteo.tf-data", "Criteo, .gz": "criteo.gz"},
        **{"Csv": "csv", "Libfm": "libfm"},
    }
    for side, speeds in result["speeds"].items():
        yield names[side], _rounded(statistics.median(speeds), 1000)


def _restart(result: dict[str, Any]) -> Iterator[Figure]:
    for side in ("memory", "checkpoint"):
        median = {
            field: statistics.median(run[field] for run in result[side])
            for field in ("seconds_of_init", "seconds_of_restore", "seconds", "step_ms")
        }
        yield f"{side}.init", f"{median['seconds_of_init']:.2f}"
        yield f"{side}.restore", f"{median['seconds_of_restore']:.2f}"
        yield side, f"{median['seconds']:.1f}"
        yield f"{side}.step", f"{median['step_ms']:.0f}"


def _export(result: dict[str, Any]) -> Iterator[Figure]:
    for version, unseen in (("1", "initial"), ("2", "zeros")):
        row = result["summary"][version]
        yield f"{unseen}.load", f"{row['seconds_to_load']:.1f}"
        yield f"{unseen}.memory", f"{row['growth_to_payload']:.2f}"
        for keys, milliseconds in row["milliseconds"].items():
            for quantile, value in milliseconds.items():
                yield f"{unseen}.{keys}.{quantile}", f"{value:.1f}"
    yield "write", f"{result['export']['seconds']:.1f}"
    yield "megabytes", f"{result['export']['payload_bytes'] / 1e6:.0f}"


def _leaderboard(result: dict[str, Any]) -> Iterator[Figure]:
    for model, published in result["published"].items():
        name = model.replace(" ", "")
        for metric in ("auc", "log_loss"):
            runs = [run[metric] for run in result["runs"] if run["side"] == model]
            mean = statistics.mean(runs)
            yield f"{name}.{metric}", f"{mean:.4f}"
            yield f"{name}.{metric}.published", f"{published[metric]:.4f}"
            yield f"{name}.{metric}.difference", f"{abs(mean - published[metric]):.4f}"


def _time_to_auc(result: dict[str, Any]) -> Iterator[Figure]:
    for side, targets in result["summary"].items():
        for target, row in targets.items():
            yield f"{side}.{target}", f"{row['seconds']['median']:.1f}"
            yield f"{side}.{target}.least", f"{row['seconds']['least']:.1f}"
            yield f"{side}.{target}.most", f"{row['seconds']['most']:.1f}"
            yield f"{side}.{target}.samples", f"{row['samples']['median']:,.0f}"


def _frappe(result: dict[str, Any]) -> Iterator[Figure]:
    for ranks in sorted({run["ranks"] for run in result["runs"]}):
        runs = [run["auc"] for run in result["runs"] if run["ranks"] == ranks]
        yield str(ranks), f"{statistics.mean(runs):.4f}"


def _hosts_auc(result: dict[str, Any]) -> Iterator[Figure]:
    for wire in ("float32", "bfloat16"):
        runs = [run for run in result["runs"] if run["wire_dtype"] == wire]
        yield wire, f"{statistics.mean(run['auc'] for run in runs):.4f}"
        for run in runs:
            yield f"{wire}.seed-{run['seed']}", f"{run['auc']:.4f}"
    for run in result["runs_of_passes"]:
        yield f"passes-{run['pass_batches']}.seed-{run['seed']}", f"{run['auc']:.4f}"


def _staleness(result: dict[str, Any]) -> Iterator[Figure]:
    for staleness in sorted({run["staleness"] for run in result["runs"]}):
        runs = [run["auc"] for run in result["runs"] if run["staleness"] == staleness]
        yield str(staleness), f"{statistics.mean(runs):.3f}"


def _timeline(result: dict[str, Any]) -> Iterator[Figure]:
    for picture, name in (("2 ranks", "ranks"), ("2 hosts, passes of 2 batches", "passes")):
        yield f"{name}.milliseconds", f"{result['pictures'][picture]['step_milliseconds']:.0f}"
    share = result["pictures"]["2 hosts, passes of 2 batches"]["share_of_fetching_under_computing"]
    yield "passes.hidden_percent", f"{100 * share:.0f}"


def _announced(result: dict[str, Any]) -> Iterator[Figure]:
    for ids, sides in result["sides"].items():
        for side, row in sides.items():
            yield f"{ids}.{side}.to_memory", f"{sides['memory']['seconds'] / row['seconds']:.2f}"
            yield f"{ids}.{side}.milliseconds", f"{1000 * row['seconds']:.1f}"
            yield f"{ids}.{side}.lookup", f"{1000 * row['lookup']:.1f}"
            yield f"{ids}.{side}", f"{result['setting']['keys'] / row['seconds']:,.0f}"


def _step_ahead(result: dict[str, Any]) -> Iterator[Figure]:
    for side, runs in result["runs"].items():
        for phase in ("lookup", "ahead"):
            milliseconds = statistics.median(run[f"{phase}_milliseconds"] for run in runs)
            yield f"{side}.{phase}", f"{milliseconds:.0f}"
        yield side, f"{result['summary'][side]['samples_per_second']:,}"


def _roles_links(result: dict[str, Any]) -> Iterator[Figure]:
    for shape, of in result["links"].items():
        for side, row in of["summary"].items():
            received = row["received_bytes_per_sample"]
            ids = 100 * received["ids or places"] / received["all"]
            rows = 100 * received["rows"] / received["all"]
            yield f"{shape}.{side}.ids_percent", f"{ids:.0f}"
            yield f"{shape}.{side}.rows_percent", f"{rows:.0f}"
            yield f"{shape}.{side}.bytes", f"{received['all']:,.0f}"
            yield f"{shape}.{side}", f"{row['samples_per_second']:,}"


def _stream_throughput(result: dict[str, Any]) -> Iterator[Figure]:
    times = result["times the parameter servers"]
    for side, median in result["median"].items():
        name = side.replace(", ", ".").replace(" ", "-")
        yield name, _rounded(median, 1000)
        yield f"{name}.to_parameter_servers", f"{times[side]:.2f}"


def _stream_kills(result: dict[str, Any]) -> Iterator[Figure]:
    yield "kills", str(result["kills"])
    for process, row in result["recovery"].items():
        name = process.replace(" ", "-")
        yield f"{name}.median", f"{row['p50_seconds']:.1f}"
        yield f"{name}.longest", f"{row['max_seconds']:.1f}"
    yield "broker.median.seconds", f"{result['recovery']['broker']['p50_seconds']:.0f}"


def _stream_speeds(result: dict[str, Any]) -> Iterator[Figure]:
    reached = result["rows_per_second"] / result["most_rows_per_second"]
    yield "percent", f"{100 * reached:.0f}"
    yield "ratio", f"{result['ratio']:.1f}"


def _stream_freshness(result: dict[str, Any]) -> Iterator[Figure]:
    for interval, auc in result["auc"].items():
        yield interval.replace(" ", "-"), f"{auc['mean']:.3f}"


def _rounded(value: float, unit: int) -> str:
    return f"{round(value / unit) * unit:,}"


def _significant(value: float, digits: int) -> str:
    return f"{value:#.{digits}g}".rstrip(".")


_FIGURES: dict[str, Callable[[dict[str, Any]], Iterator[Figure]]] = {
    "step": _step,
    "step_uniform": _steps,
    "step_ranks": _steps,
    "hosts": _steps,
    "hosts_auc": _hosts_auc,
    "sharding": _sharding,
    "timeline": _timeline,
    "memory": _memory,
    "announced": _announced,
    "step_ahead": _step_ahead,
    "step_ahead_uniform": _step_ahead,
    "lookup": _lookup,
    "lists": _lists,
    "readers": _readers,
    "restart": _restart,
    "export": _export,
    "leaderboard": _leaderboard,
    "time_to_auc": _time_to_auc,
    "frappe": _frappe,
    "staleness": _staleness,
    "roles_links": _roles_links,
    "stream_throughput": _stream_throughput,
    "stream_kills": _stream_kills,
    "stream_speeds": _stream_speeds,
    "stream_freshness": _stream_freshness,
}
