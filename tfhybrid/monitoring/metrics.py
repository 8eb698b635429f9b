"""The metrics of a job: name, meaning and source of each, for all programs that show them.

`tfhybrid top`, `callbacks.TensorBoard` and the endpoint for Prometheus use them. Metrics of tables
are in shared memory, where any process on the host can read them. Metrics of a job are counted by
its process. This module needs neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tfhybrid.core import native
from tfhybrid.monitoring.report import PassReport, StoreReport, TableReport

PREFIX = "tfhybrid_"


class Metric(NamedTuple):
    """A metric of a table or of a job.

    Attributes:
        name: Name without `PREFIX` and without the suffix `_total` of counters.
        kind: Kind for Prometheus, `"gauge"`, or `"counter"` if the value only grows.
        meaning: Sentence that describes the metric.
        label: Name of the label that distinguishes several values; empty for a single value.
    """

    name: str
    kind: str
    meaning: str
    label: str = ""


class TableMetric(NamedTuple):
    """Metric of a table, with the function that gets the metric's value from a report."""

    metric: Metric
    read: Callable[[TableReport], float]


def _of_table(
    name: str, kind: str, meaning: str, read: Callable[[TableReport], float]
) -> TableMetric:
    return TableMetric(Metric(name, kind, meaning, "table"), read)


OF_TABLES = (
    _of_table("rows", "gauge", "Rows of the table.", lambda table: table.rows),
    _of_table("bytes", "gauge", "Shared memory of the table on this host.", lambda t: t.bytes),
    _of_table("updates", "counter", "Updates applied to the table.", lambda table: table.version),
    _of_table(
        "new_rows",
        "counter",
        "Rows that were added, by training or by loading.",
        lambda table: table.rows + table.evicted,
    ),
    _of_table("evicted_rows", "counter", "Rows that were evicted.", lambda table: table.evicted),
    _of_table("file_bytes", "gauge", "Rows in files on a disk.", lambda table: table.file_bytes),
    _of_table("cache_hits", "counter", "Rows of files found in the cache.", lambda t: t.cache_hits),
    _of_table(
        "cache_misses", "counter", "Rows of files read from the disk.", lambda t: t.cache_misses
    ),
)


class PassMetric(NamedTuple):
    """Metric of the passes (rows fetched ahead) of a host, with the function that reads it."""

    metric: Metric
    read: Callable[[PassReport], dict[str, float]]


OF_PASSES = (
    PassMetric(
        Metric("passes", "counter", "Passes that the ranks of this host announced."),
        lambda passes: {"": passes.announced},
    ),
    PassMetric(
        Metric("pass_keys", "counter", "Distinct keys that lookups searched in passes.", "met"),
        lambda passes: {"hit": passes.hits, "miss": passes.misses},
    ),
    PassMetric(
        Metric("pass_rows", "counter", "Rows of passes by source, and rows written back.", "way"),
        lambda passes: {
            "fetched": passes.fetched,
            "refreshed": passes.refreshed,
            "copied": passes.copied,
            "written_back": passes.written,
        },
    ),
    PassMetric(
        Metric("pass_received_bytes", "counter", "Bytes of rows received for passes."),
        lambda passes: {"": passes.received_bytes},
    ),
    PassMetric(
        Metric("fast_tier_rows", "gauge", "Rows in the open passes of this host."),
        lambda passes: {"": passes.rows},
    ),
    PassMetric(
        Metric("fast_tier_bytes", "gauge", "Shared memory of the open passes."),
        lambda passes: {"": passes.bytes},
    ),
)
WAITING_KEYS = Metric("waiting_keys", "gauge", "Keys that wait for admission.", "table")
RANKS = Metric("ranks", "gauge", "Ranks of this host, by state.", "state")

STEPS = Metric("steps", "counter", "Updates applied, of all tables together.")
SAMPLES = Metric("samples", "counter", "Samples of all ranks on which the job has trained.")
PHASES = Metric("phase_seconds", "counter", "Time of rank 0 in phases of its steps.", "phase")
EXCHANGE = Metric(
    "exchange_bytes",
    "counter",
    "Bytes of gradients and rows between this host and others.",
    "direction",
)
ROWS_READ = Metric(
    "row_service_rows", "counter", "Rows of sharded tables that lookups read.", "direction"
)
ROWS_READ_BYTES = Metric(
    "row_service_bytes", "counter", "The same rows, in bytes on the network.", "direction"
)
UPTIME = Metric(
    "uptime_seconds", "gauge", "Time since this run started; falls when a job is restarted."
)
MISSING_UPDATES = Metric(
    "missing_updates",
    "gauge",
    "Updates that rows lacked when embedding nodes sent them: median and maximum.",
    "of",
)
RESUMED_STEP = Metric("resumed_step", "gauge", "Step at which this run resumed.", "source")
CHECKPOINTS = Metric("checkpoints", "counter", "Checkpoints that were written.")
CHECKPOINT_FAILURES = Metric(
    "checkpoint_failures", "counter", "Checkpoints that could not be written."
)
CHECKPOINT_AGE = Metric(
    "checkpoint_age_seconds", "gauge", "Time since this run's last checkpoint was complete."
)
CHECKPOINT_DURATION = Metric(
    "checkpoint_duration_seconds", "gauge", "Time in which the last checkpoint was written."
)
CHECKPOINT_BYTES = Metric("checkpoint_bytes", "gauge", "Size of the last checkpoint.")

OF_JOB = (
    *(STEPS, SAMPLES, PHASES, EXCHANGE, ROWS_READ, ROWS_READ_BYTES, UPTIME),
    *(MISSING_UPDATES, RESUMED_STEP),
    *(CHECKPOINTS, CHECKPOINT_FAILURES, CHECKPOINT_AGE, CHECKPOINT_DURATION, CHECKPOINT_BYTES),
)


def _of_model(name: str, kind: str, meaning: str) -> Metric:
    return Metric(name, kind, meaning, "model")


STREAM_UPDATES = _of_model("stream_updates", "counter", "Updates applied by the sync unit.")
STREAM_REFUSED = _of_model(
    "stream_refused_updates", "counter", "Updates refused because their lease had ended."
)
STREAM_STALENESS_P50 = _of_model(
    "stream_staleness_p50", "gauge", "Updates applied since its trainer read the weights; median."
)
STREAM_STALENESS_P99 = _of_model(
    "stream_staleness_p99",
    "gauge",
    "Updates applied since its trainer read the weights; 99th percentile.",
)
STREAM_LAG = Metric(
    "stream_lag_records", "gauge", "Records not yet leased to a trainer, by MODEL/QUEUE.", "queue"
)
UNPUBLISHED_ROWS = _of_model(
    "unpublished_rows", "gauge", "Rows trained since the last publication."
)
PUBLICATIONS = _of_model("publications", "counter", "Publications that were written.")
PUBLICATIONS_WITHHELD = _of_model("publications_withheld", "counter", "Publications withheld.")
PUBLICATIONS_FAILED = _of_model(
    "publications_failed", "counter", "Publications that could not be written."
)
PUBLISHED_BYTES = _of_model("published_bytes", "counter", "Bytes of publications.")
LAST_PUBLICATION_BYTES = _of_model(
    "last_publication_bytes", "gauge", "Bytes of the last publication."
)
PUBLICATION_NUMBER = _of_model("publication_number", "gauge", "Number of the last publication.")
PUBLICATION_AUC = _of_model(
    "publication_auc", "gauge", "AUC of the last publication, on rows before training on them."
)
READER_NUMBER = _of_model(
    "reader_publication", "gauge", "Number of the publication that the reader serves."
)
READER_GAPS = _of_model("reader_gaps", "counter", "Bases loaded because a delta was missed.")
READER_FAILURES = _of_model(
    "reader_failures", "counter", "Publications that the reader could not load."
)
FRESHNESS_P50 = _of_model(
    "freshness_p50_seconds", "gauge", "Time from an event until it can be read; median."
)
FRESHNESS_P99 = _of_model(
    "freshness_p99_seconds", "gauge", "Time from an event until it can be read; 99th percentile."
)
OF_STREAM = (
    *(STREAM_UPDATES, STREAM_REFUSED, STREAM_STALENESS_P50, STREAM_STALENESS_P99, STREAM_LAG),
    *(UNPUBLISHED_ROWS, PUBLICATIONS, PUBLICATIONS_WITHHELD, PUBLICATIONS_FAILED),
    *(PUBLISHED_BYTES, LAST_PUBLICATION_BYTES, PUBLICATION_NUMBER, PUBLICATION_AUC),
    *(READER_NUMBER, READER_GAPS, READER_FAILURES, FRESHNESS_P50, FRESHNESS_P99),
)
OF_HOST = (
    *(each.metric for each in OF_TABLES),
    *(each.metric for each in OF_PASSES),
    *(WAITING_KEYS, RANKS),
)

_noted: dict[tuple[str, str], float] = {}
_lock = threading.Lock()
_started = time.monotonic()
_saved: float | None = None  # when the last checkpoint was complete


def note(metric: Metric, value: float, label: str = "") -> None:
    """Sets the value of a metric of this process. Thread-safe.

    Args:
        metric: A gauge, or a counter that is counted elsewhere.
        value: New value.
        label: Value of the metric's label; empty (default) for a metric without one.
    """
    with _lock:
        _noted[metric.name, label] = value


def count(metric: Metric) -> None:
    """Increments a counter of this process that has no label, by one. Thread-safe."""
    with _lock:
        _noted[metric.name, ""] = _noted.get((metric.name, ""), 0) + 1


def of_stream() -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics of online training that this process recorded: values by label.

    Thread-safe.

    Yields:
        A metric, and its values by the value of `Metric.label`, a model or a queue.
    """
    with _lock:
        noted = dict(_noted)
    for metric in OF_STREAM:
        values = {label: value for (name, label), value in noted.items() if name == metric.name}
        if values:
            yield metric, values


def note_checkpoint(seconds: float, size: int) -> None:
    """Records a complete checkpoint. Thread-safe.

    Args:
        seconds: Time in which it was written, in seconds.
        size: Bytes of the checkpoint.
    """
    global _saved
    count(CHECKPOINTS)
    note(CHECKPOINT_DURATION, seconds)
    note(CHECKPOINT_BYTES, size)
    with _lock:
        _saved = time.monotonic()


def of_process() -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics of a job that this process has counted or recorded. Thread-safe.

    Yields:
        A metric, and a dict of its values by the value of `Metric.label`, such as the name of a
        phase; the key is `""` for a metric with a single value. Metrics that were never recorded,
        such as those of checkpoints, are left out.
    """
    counted = native.counters()
    yield STEPS, {"": counted["steps"]}
    yield SAMPLES, {"": counted["samples"]}
    yield PHASES, dict(native.phase_times())
    yield EXCHANGE, {"sent": counted["sent_bytes"], "received": counted["received_bytes"]}
    for metric, unit in ((ROWS_READ, "rows"), (ROWS_READ_BYTES, "bytes")):
        yield metric, {way: counted[f"{way}_{unit}"] for way in ("fetched", "served")}
    now = time.monotonic()
    yield UPTIME, {"": now - _started}
    with _lock:
        noted = dict(_noted)
        if _saved is not None:
            yield CHECKPOINT_AGE, {"": now - _saved}
    for metric in OF_JOB:
        values = {label: value for (name, label), value in noted.items() if name == metric.name}
        if values:
            yield metric, values


def of_store(report: StoreReport) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics of one job's store: its tables on this host, and its ranks on this host.

    Any process on the host may call it.

    Args:
        report: Report of the job's store.

    Yields:
        A metric, and a dict with its values: for a metric of tables, the value of each table by the
            table's name, without tables that cannot be read; for a metric of passes, its values by
            `Metric.label`; for `RANKS`, the number of ranks by state, such as `"living"`.
    """
    readable = [table for table in report.tables if not table.problem]
    tables = [table for table in readable if not table.name.endswith(native.WAITING_SUFFIX)]
    for metric, read in OF_TABLES:
        yield metric, {table.name: read(table) for table in tables}
    yield (
        WAITING_KEYS,
        {
            table.name.removesuffix(native.WAITING_SUFFIX): table.rows
            for table in readable
            if table.name.endswith(native.WAITING_SUFFIX)
        },
    )
    for of_passes, values in OF_PASSES:
        yield of_passes, values(report.passes)
    states: dict[str, float] = dict.fromkeys((state.name.lower() for state in native.RankState), 0)
    for rank in report.ranks:
        states[rank.state.name.lower()] += 1
    yield RANKS, states


def rates(before: StoreReport, now: StoreReport, seconds: float) -> dict[str, dict[str, float]]:
    """Returns the rates of the counters per second: table -> metric -> rate.

    The rates of a table that is new in `now` are zero, and so is the rate of a counter that has
    fallen, as by loading or clearing. Tables that are only in `before` are left out.

    Args:
        before: Earlier report of the store.
        now: Current report of the store.
        seconds: Time between the two reports, in seconds; above 0.
    """
    older = {table.name: table for table in before.tables}
    return {
        table.name: {
            metric.name: max(0, read(table) - read(older.get(table.name, table))) / seconds
            for metric, read in OF_TABLES
            if metric.kind == "counter"
        }
        for table in now.tables
    }


def pass_rates(before: PassReport, now: PassReport, seconds: float) -> dict[str, float]:
    """Returns the rates of the counters of passes: "METRIC LABEL" -> rate.

    The rate of a counter that has fallen is 0.

    Args:
        before: Earlier report of the passes.
        now: Current report of the passes.
        seconds: Time between the two reports in seconds, or another divisor, such as a number of
            steps; above 0.
    """
    return {
        f"{metric.name} {label}".rstrip(): max(0, value - read(before)[label]) / seconds
        for metric, read in OF_PASSES
        if metric.kind == "counter"
        for label, value in read(now).items()
    }
