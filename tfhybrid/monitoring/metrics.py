"""The metrics of all processes: name, kind, meaning and labels of each, and their readings.

`tfhybrid top`, `callbacks.TensorBoard` and the endpoint for Prometheus use them. Metrics of tables
are in shared memory, where any process on the host can read them. Metrics of a job are counted by
its process. This module needs neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from tfhybrid.core import native
from tfhybrid.monitoring.report import PassReport, StoreReport, TableReport

PREFIX = "tfhybrid_"

_Key = TypeVar("_Key", bound=Hashable)


class Metric(NamedTuple):
    """A number that a process measures.

    Attributes:
        name: Name without `PREFIX` and without the suffix `_total` of counters. A number of bytes
            has `bytes` in its name.
        kind: Kind for Prometheus, `"gauge"`, or `"counter"` if the value only grows.
        meaning: Sentence that describes the metric.
        label: Name of the label that distinguishes several values; empty for a single value; a
            tuple of names for values with several labels.
    """

    name: str
    kind: str
    meaning: str
    label: str | tuple[str, ...] = ""


class Metrics(list[Metric]):
    """The metrics of one kind of process, in the order in which they are defined."""

    def counter(self, name: str, meaning: str, label: str = "") -> Metric:
        """Adds a metric whose value only grows, and returns it.

        Args:
            name: Name without `PREFIX` and `_total`.
            meaning: Sentence that describes the metric.
            label: Name of its label. Default: none.
        """
        self.append(Metric(name, "counter", meaning, label))
        return self[-1]

    def gauge(self, name: str, meaning: str, label: str = "") -> Metric:
        """Adds a metric whose value may fall, and returns it.

        Args:
            name: Name without `PREFIX` and `_total`.
            meaning: Sentence that describes the metric.
            label: Name of its label. Default: none.
        """
        self.append(Metric(name, "gauge", meaning, label))
        return self[-1]


# A metric with its values by the value of its label, or by the tuple of those of its labels.
Values = Mapping[str, float] | Mapping[tuple[str, ...], float]
Reading = Iterable[tuple[Metric, Values]]


def _of_table(name: str, kind: str, meaning: str) -> Metric:
    return Metric(name, kind, meaning, "table")


# The attribute of a `TableReport` that has the value, by metric.
OF_TABLES = {
    _of_table("rows", "gauge", "Rows of the table."): "rows",
    _of_table("bytes", "gauge", "Shared memory of the table on this host."): "bytes",
    _of_table("updates", "counter", "Updates applied to the table."): "version",
    _of_table("new_rows", "counter", "Rows that were added, by training or by loading."): "added",
    _of_table("evicted_rows", "counter", "Rows that were evicted."): "evicted",
    _of_table("file_bytes", "gauge", "Rows in files on a disk."): "file_bytes",
    _of_table("cache_hits", "counter", "Rows of files found in the cache."): "cache_hits",
    _of_table("cache_misses", "counter", "Rows of files read from the disk."): "cache_misses",
}

# The attributes of a `PassReport` that have the values, by metric and label.
OF_PASSES = {
    Metric("passes", "counter", "Passes that the ranks of this host announced."): {"": "announced"},
    Metric("pass_keys", "counter", "Distinct keys that lookups searched in passes.", "met"): {
        "hit": "hits",
        "miss": "misses",
    },
    Metric("pass_rows", "counter", "Rows of passes by source, and rows written back.", "way"): {
        "fetched": "fetched",
        "refreshed": "refreshed",
        "copied": "copied",
        "written_back": "written",
    },
    Metric("pass_received_bytes", "counter", "Bytes of rows received for passes."): {
        "": "received_bytes"
    },
    Metric("fast_tier_rows", "gauge", "Rows in the open passes of this host."): {"": "rows"},
    Metric("fast_tier_bytes", "gauge", "Shared memory of the open passes."): {"": "bytes"},
}
WAITING_KEYS = Metric("waiting_keys", "gauge", "Keys that wait for admission.", "table")
RANKS = Metric("ranks", "gauge", "Ranks of this host, by state.", "state")

OF_JOB = Metrics()
STEPS = OF_JOB.counter("steps", "Updates applied, of all tables together.")
SAMPLES = OF_JOB.counter("samples", "Samples of all ranks on which the job has trained.")
PHASES = OF_JOB.counter("phase_seconds", "Time of rank 0 in phases of its steps.", "phase")
EXCHANGE = OF_JOB.counter(
    "exchange_bytes", "Bytes of gradients and rows between this host and others.", "direction"
)
ROWS_READ = OF_JOB.counter(
    "row_service_rows", "Rows of sharded tables that lookups read.", "direction"
)
ROWS_READ_BYTES = OF_JOB.counter(
    "row_service_bytes", "The same rows, in bytes on the network.", "direction"
)
UPTIME = OF_JOB.gauge(
    "uptime_seconds", "Time since this run started; falls when a job is restarted."
)
MISSING_UPDATES = OF_JOB.gauge(
    "missing_updates",
    "Updates that rows lacked when embedding nodes sent them: median and maximum.",
    "of",
)
RESUMED_STEP = OF_JOB.gauge("resumed_step", "Step at which this run resumed.", "source")
CHECKPOINTS = OF_JOB.counter("checkpoints", "Checkpoints that were written.")
CHECKPOINT_FAILURES = OF_JOB.counter(
    "checkpoint_failures", "Checkpoints that could not be written."
)
CHECKPOINT_AGE = OF_JOB.gauge(
    "checkpoint_age_seconds", "Time since this run's last checkpoint was complete."
)
CHECKPOINT_DURATION = OF_JOB.gauge(
    "checkpoint_duration_seconds", "Time in which the last checkpoint was written."
)
CHECKPOINT_BYTES = OF_JOB.gauge("checkpoint_bytes", "Size of the last checkpoint.")

OF_STREAM = Metrics()
STREAM_UPDATES = OF_STREAM.counter("stream_updates", "Updates applied by the sync unit.", "model")
STREAM_REFUSED = OF_STREAM.counter(
    "stream_refused_updates", "Updates refused because their lease had ended.", "model"
)
STREAM_SET_ASIDE = OF_STREAM.gauge(
    "stream_set_aside_records",
    "Records of the journal that could not be applied when they were read again.",
    "model",
)
STREAM_STALENESS_P50 = OF_STREAM.gauge(
    "stream_staleness_p50", "Updates applied since its trainer read the weights; median.", "model"
)
STREAM_STALENESS_P99 = OF_STREAM.gauge(
    "stream_staleness_p99",
    "Updates applied since its trainer read the weights; 99th percentile.",
    "model",
)
STREAM_LAG = OF_STREAM.gauge(
    "stream_lag_records", "Records not yet leased to a trainer, by MODEL/QUEUE.", "queue"
)
STREAM_BAD_ROWS = OF_STREAM.gauge(
    "stream_bad_rows", "Bad rows in the provider's file, and rows of leases set aside."
)
STREAM_ASIDE_ROWS = OF_STREAM.gauge(
    "stream_set_aside_rows",
    "Rows of a lease set aside because trainers died under it, by MODEL/QUEUE[BEGIN,END).",
    "lease",
)
UNPUBLISHED_ROWS = OF_STREAM.gauge(
    "unpublished_rows", "Rows trained since the last publication.", "model"
)
PUBLICATIONS = OF_STREAM.counter("publications", "Publications that were written.", "model")
PUBLICATIONS_WITHHELD = OF_STREAM.counter(
    "publications_withheld", "Publications withheld.", "model"
)
PUBLICATIONS_FAILED = OF_STREAM.counter(
    "publications_failed", "Publications that could not be written.", "model"
)
PUBLISHED_BYTES = OF_STREAM.counter("published_bytes", "Bytes of publications.", "model")
LAST_PUBLICATION_BYTES = OF_STREAM.gauge(
    "last_publication_bytes", "Bytes of the last publication.", "model"
)
PUBLICATION_NUMBER = OF_STREAM.gauge(
    "publication_number", "Number of the last publication.", "model"
)
PUBLICATION_AUC = OF_STREAM.gauge(
    "publication_auc", "AUC of the last publication, on rows before training on them.", "model"
)
READER_NUMBER = OF_STREAM.gauge(
    "reader_publication", "Number of the publication that the reader serves.", "model"
)
READER_GAPS = OF_STREAM.counter("reader_gaps", "Bases loaded because a delta was missed.", "model")
READER_FAILURES = OF_STREAM.counter(
    "reader_failures", "Publications that the reader could not load.", "model"
)
FRESHNESS_P50 = OF_STREAM.gauge(
    "freshness_p50_seconds", "Time from an event until it can be read; median.", "model"
)
FRESHNESS_P99 = OF_STREAM.gauge(
    "freshness_p99_seconds", "Time from an event until it can be read; 99th percentile.", "model"
)

OF_HOST = (*OF_TABLES, *OF_PASSES, WAITING_KEYS, RANKS)

# Numbers that an embedding node reports and that only grow, until it or its job starts anew.
COUNTED_BY_NODES = ("updates", "served_rows", "served_bytes", "received_bytes", "sent_bytes")

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
    yield from _recorded(OF_STREAM)


def as_dict(reading: Reading) -> dict[str, dict[str, float]]:
    """Converts a reading to dictionaries for a message: one for each metric, by its name.

    Args:
        reading: Metrics with at most one label.

    Returns:
        The values of each metric by the value of its label, which is `""` without a label.
    """
    return {
        metric.name: {str(label): each for label, each in values.items()}
        for metric, values in reading
    }


def from_dict(
    fields: Mapping[str, Mapping[str, float]],
) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics of online training that `as_dict` put into a message.

    Skips metrics that this version lacks.

    Args:
        fields: Result of `as_dict`.

    Yields:
        A metric, and its values by label.
    """
    for metric in OF_STREAM:
        if metric.name in fields:
            yield metric, dict(fields[metric.name])


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
    saved = _saved
    if saved is not None:
        yield CHECKPOINT_AGE, {"": now - saved}
    yield from _recorded(OF_JOB)


def _recorded(metrics: Iterable[Metric]) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields those of some metrics that `note` and `count` recorded, with values by label."""
    with _lock:
        noted = dict(_noted)
    for metric in metrics:
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
    waiting = {
        table.name.removesuffix(native.WAITING_SUFFIX): float(table.rows)
        for table in readable
        if table.name.endswith(native.WAITING_SUFFIX)
    }
    yield from of_tables(t for t in readable if not t.name.endswith(native.WAITING_SUFFIX))
    yield WAITING_KEYS, waiting
    yield from of_passes(report.passes)
    states: dict[str, float] = dict.fromkeys((state.name.lower() for state in native.RankState), 0)
    for rank in report.ranks:
        states[rank.state.name.lower()] += 1
    yield RANKS, states


def of_tables(tables: Iterable[TableReport]) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics of tables, each with its values by the name of the table."""
    tables = list(tables)
    for metric, attribute in OF_TABLES.items():
        yield metric, {table.name: getattr(table, attribute) for table in tables}


def of_passes(passes: PassReport) -> Iterator[tuple[Metric, dict[str, float]]]:
    """Yields the metrics of the passes of a host, each with its values by label."""
    for metric, attributes in OF_PASSES.items():
        yield metric, {label: getattr(passes, each) for label, each in attributes.items()}


def counters(reading: Reading) -> dict[tuple[str, str | tuple[str, ...]], float]:
    """Returns the values of counters by the name of the metric and the label."""
    return {
        (metric.name, label): value
        for metric, values in reading
        if metric.kind == "counter"
        for label, value in values.items()
    }


def rates(before: Mapping[_Key, float], now: Mapping[_Key, float], per: float) -> dict[_Key, float]:
    """Returns the growth of counters between two readings, per second or per step.

    Args:
        before: Counters of the earlier reading.
        now: Counters of the later reading.
        per: Seconds between the two readings, or number of steps.

    Returns:
        Rates of the counters that both readings have. Left out are counters that have fallen, as
        by loading, clearing or a restart; all, if no time has passed.
    """
    if per <= 0:
        return {}
    return {
        key: (value - before[key]) / per
        for key, value in now.items()
        if value >= before.get(key, math.inf)
    }
