"""Training metrics, table statistics and phase times for TensorBoard."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._deprecated import renamed_arguments
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.core import native
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.metrics import phase_times
from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.report import PassReport, report_stores
from tfhybrid.settings import shm_directory
from tfhybrid.store import ShardSize, TableStats

# The metadata that tf.summary.scalar writes. That function needs the package tensorboard, which
# TensorFlow 2.21 does not install.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)

_ROW_SERVICE = ("fetched_rows", "fetched_bytes", "served_rows", "served_bytes")


class TensorBoard(keras.callbacks.Callback):
    """Callback that writes training metrics, table statistics and phase times; a run is a curve.

    Only rank 0 writes. Tables are the same on every host; `unique_ratio` and times are those of
    rank 0. TensorBoard shows `main/` first. Put this callback after `callbacks.Evaluate`, whose
    metrics it then writes too.

    | Tag | Value |
    | --- | --- |
    | `main/samples_per_second` | samples of all ranks |
    | `main/...` | Keras's logs: `loss`, metrics, and `val_...` at the end of an epoch |
    | `tables/TABLE/rows`, `bytes`, `waiting_keys` | size of a table, keys that wait for admission |
    | `tables/TABLE/new_keys`, `evicted_keys` | keys per step |
    | `tables/TABLE/unique_ratio` | distinct keys of a step divided by all its keys |
    | `tables/TABLE/norm/...` | quantiles of the embeddings' norms, at the end of an epoch |
    | `tables/TABLE/owners/HOST/rows`, `bytes` | part of a sharded table on each host |
    | `tables/TABLE/skew` | rows of a sharded table on the fullest host, divided by the mean |
    | `tables/TABLE/cache_hits`, `cache_misses` | rows of a table in files, per step |
    | `row_service/fetched_rows`, `fetched_bytes` | reads of this rank from other hosts, per step |
    | `row_service/served_rows`, `served_bytes` | reads of other hosts from this one, per step |
    | `passes/pass_keys/hit`, `miss` | keys that this host's passes had or lacked, per step |
    | `passes/pass_rows/fetched`, `refreshed`, `copied` | rows of passes by source, per step |
    | `passes/pass_rows/written_back` | rows that updates wrote back to their owner, per step |
    | `passes/pass_received_bytes` | bytes of received rows, per step |
    | `passes/fast_tier_rows`, `fast_tier_bytes` | size of the open passes |
    | `stream/MODEL/...` | metrics of online training from `tfhybrid.stream.Validate` |
    | `phase_ms/...` | milliseconds per step in a phase |

    The phases:

    | | |
    | --- | --- |
    | `wait` | an op waits until earlier updates are applied |
    | `fetch` | rows are fetched from the hosts that own them |
    | `lookup` | embeddings are read |
    | `sum` | the rank's gradients are summed by key |
    | `post` | the sums are posted |
    | `collect` | the leader waits for the ranks of its host |
    | `exchange` | hosts exchange the gradients that their leaders merged |
    | `plan` | the leader merges all keys and reserves space |
    | `apply` | the leader creates rows, updates them, and settles |
    | `settle` | the leader counts waiting keys and evicts |
    | `pass` | rows of a pass are being transferred; no thread waits for them |
    | `ahead` | a data set numbers the keys of a batch before its lookup |

    Phases of different threads overlap. Lookups of evaluation are included.

    Args:
        log_dir: Directory of TensorBoard. Each run writes a folder in it.
        run: Name of this run's folder and curve. Defaults to the start time.
        every_steps: Number of steps between writes. Defaults to 100.
        norm_quantiles: Quantiles of norms to write, from 0 to 1. They are estimated from at most a
            million rows. Defaults to 0.5, 0.9 and 0.99.

    Raises:
        ConfigError: `every_steps` is not a number of steps; or, at the end of an epoch, a quantile
            is out of range.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.TensorBoard("logs/")])
    ```
    """

    @renamed_arguments(every="every_steps")
    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        *,
        run: str | None = None,
        every_steps: int = 100,
        norm_quantiles: Sequence[float] = (0.5, 0.9, 0.99),
    ) -> None:
        super().__init__()
        if not isinstance(every_steps, int) or every_steps < 1:
            raise ConfigError(
                "every_steps must be a number of steps, at least 1. "
                f"Received: every_steps={every_steps!r}"
            )
        self._log_dir = os.fspath(log_dir)
        self._run = run
        self._every_steps = every_steps
        self._quantiles = tuple(norm_quantiles)
        self._begun_at = 0  # the step of the last write
        self._begun = 0.0  # the time of the last write
        self._counted: dict[str, int] = {}
        self._last_stats: dict[str, TableStats] = {}
        self._passes = PassReport()
        self._times: dict[str, float] = {}
        self._writer: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Opens the writer on rank 0. Called by Keras."""
        if distributed.rank() == 0:
            run = self._run or time.strftime("%Y%m%d-%H%M%S")
            self._writer = tf.summary.create_file_writer(f"{self._log_dir}/{run}")
            self._begin()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes metrics if `every_steps` steps have passed since the last time. Keras calls it."""
        if self._writer is not None and self._step() - self._begun_at >= self._every_steps:
            self._write((), logs or {})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes at the end of an epoch, including quantiles of norms. Called by Keras."""
        if self._writer is not None:
            self._write(self._quantiles, logs or {})
            self._writer.flush()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Closes the writer. Called by Keras."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _begin(self) -> None:
        self._begun_at = self._step()
        self._begun = time.monotonic()
        self._counted = native.counters()
        self._times = phase_times()

    def _step(self) -> int:
        return int(self.model.optimizer.iterations)

    def _write(self, quantiles: Sequence[float], logs: dict[str, Any]) -> None:
        steps = max(1, self._step() - self._begun_at)
        counted = {name: n - self._counted[name] for name, n in native.counters().items()}
        values = {"main/samples_per_second": counted["samples"] / (time.monotonic() - self._begun)}
        values |= {f"main/{name}": float(value) for name, value in logs.items()}
        for name, table in tables_of(self.model).items():
            stats = table.stats(norm_quantiles=quantiles)
            values |= _of_table(name, stats, steps) | _of_cache(
                name, stats, self._last_stats, steps
            )
            self._last_stats[name] = stats
            if table.is_sharded:
                values |= _of_owners(name, table.owners())
                values |= {f"row_service/{what}": counted[what] / steps for what in _ROW_SERVICE}
        values |= _of_stream()
        values |= self._of_passes(steps)
        for phase, seconds in phase_times().items():
            values[f"phase_ms/{phase}"] = 1e3 * (seconds - self._times[phase]) / steps
        with self._writer.as_default(step=self._step()):
            for tag, value in values.items():
                if not math.isnan(value):
                    tf.summary.write(tag, tf.constant(value, tf.float32), metadata=_SCALAR)
        self._begin()

    def _of_passes(self, steps: int) -> dict[str, float]:
        stores = report_stores(shm_directory())
        (passes,) = (store.passes for store in stores if store.job == current_job().name)
        before, self._passes = self._passes, passes
        if not passes.announced:
            return {}
        now = dict(metrics.of_passes(passes))
        counted = metrics.counters(metrics.of_passes(before)), metrics.counters(now.items())
        values = {
            f"passes/{name}/{label}".rstrip("/"): rate
            for (name, label), rate in metrics.rates(*counted, steps).items()
        }
        gauges = [metric for metric in now if metric.kind == "gauge"]
        return values | {f"passes/{metric.name}": now[metric][""] for metric in gauges}


def _of_stream() -> dict[str, float]:
    """Returns the metrics of online training that this process recorded, by model and metric."""
    return {
        f"stream/{label}/{metric.name}": value
        for metric, values in metrics.of_stream()
        for label, value in values.items()
    }


def _of_table(name: str, stats: TableStats, steps: int) -> dict[str, float]:
    return {
        f"tables/{name}/rows": stats.rows,
        f"tables/{name}/bytes": stats.bytes + stats.waiting_bytes,
        f"tables/{name}/waiting_keys": stats.waiting,
        f"tables/{name}/new_keys": stats.new_rows / steps,
        f"tables/{name}/evicted_keys": stats.evicted_rows / steps,
        f"tables/{name}/unique_ratio": stats.unique_ratio,
        **{f"tables/{name}/norm/{q}": norm for q, norm in stats.norm_quantiles.items()},
    }


def _of_cache(
    name: str, stats: TableStats, last_stats: dict[str, TableStats], steps: int
) -> dict[str, float]:
    if not stats.file_bytes:
        return {}
    before = last_stats.get(name)
    counts = {
        "cache_hits": stats.cache_hits - (before.cache_hits if before else 0),
        "cache_misses": stats.cache_misses - (before.cache_misses if before else 0),
    }
    return {f"tables/{name}/{what}": max(0, count) / steps for what, count in counts.items()}


def _of_owners(name: str, shards: Sequence[ShardSize]) -> dict[str, float]:
    values: dict[str, float] = {}
    for shard in shards:
        values[f"tables/{name}/owners/{shard.host}/rows"] = shard.rows
        values[f"tables/{name}/owners/{shard.host}/bytes"] = shard.bytes
    rows = [shard.rows for shard in shards]
    values[f"tables/{name}/skew"] = max(rows) * len(rows) / sum(rows) if any(rows) else math.nan
    return values
