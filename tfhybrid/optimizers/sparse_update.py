"""The sparse part of a step: the leaders apply the sparse gradients of all ranks to the tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.config.table_optimizers import RateFactor, SparseOptimizer
from tfhybrid.core import native
from tfhybrid.core.update import UpdateChoices
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.job import current_job
from tfhybrid.layers import EventClock
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.ops import update_ops
from tfhybrid.ops.lookup import samples_of
from tfhybrid.ops.update_ops import Contribution, StepNumbers, UpdateRef
from tfhybrid.optimizers.clipping import Clipping
from tfhybrid.optimizers.exchange import exchange_between_hosts

REDUCTIONS = ("frequency", "sum", "mean")
EXCHANGES = ("leaders", "owner", "all_ranks")
WIRE_DTYPES = ("float32", "bfloat16")


class StateKeeper(Protocol):
    """Keeper of the dense state (weights, optimizer) that belongs to an update, for a restart."""

    def keep(self, proxies: Sequence[TableProxy]) -> tf.Operation:
        """Returns an op that keeps the state. Run it before posting the update of these tables.

        Args:
            proxies: Keras variables that stand for the tables.
        """


class SparseUpdate:
    """Application of sparse gradients to tables, with the same result on every host.

    Args:
        reduction: Divisor of a key's summed gradient: `"frequency"` is the number of ranks in which
            the key occurred; `"mean"` is the samples of all ranks, after weighting each rank by its
            samples; `"sum"` does not divide.
        exchange: Route of gradients between hosts, one of `EXCHANGES`.
        wire_dtype: Type to which gradients are rounded between hosts, one of `WIRE_DTYPES`.
        clipping: Rule by which reduced gradients are clipped.
        event_clock: Clock for tables that evict rows by event time; `None` without such tables.
        name: Prefix of the names of the collectives; equal on all ranks.

    Raises:
        ConfigError: An argument is not one of the allowed values.
    """

    def __init__(
        self,
        reduction: str,
        exchange: str,
        wire_dtype: str,
        clipping: Clipping,
        event_clock: EventClock | None,
        name: str,
    ) -> None:
        if reduction not in REDUCTIONS:
            raise ConfigError(f"reduction must be one of {REDUCTIONS}. Received: {reduction!r}")
        if exchange not in EXCHANGES:
            raise ConfigError(f"exchange must be one of {EXCHANGES}. Received: {exchange!r}")
        if wire_dtype not in WIRE_DTYPES:
            raise ConfigError(f"wire_dtype must be one of {WIRE_DTYPES}. Received: {wire_dtype!r}")
        self.reduction = reduction
        self.exchange = exchange
        self.wire_dtype = wire_dtype
        if not isinstance(event_clock, EventClock | None):
            raise ConfigError(
                "event_clock must be a tfhybrid.layers.EventClock. "
                f"Received: event_clock={event_clock!r}"
            )
        self.clipping = clipping
        self._event_clock = event_clock
        self.name = name
        self.variables: list[Any] = []  # everything the optimizer was built for, including tables
        self.keeper: StateKeeper | None = None  # keeps the state that belongs to each update
        self._optimizers: dict[str, SparseOptimizer] = {}
        # The factor of LearningRateWarmup for the tables' own rates.
        self.rate_scale = tf.Variable(1.0, trainable=False, name=f"{name}_rate_scale")

    def configuration(self) -> dict[str, Any]:
        """Returns the settings of updates and the tables' optimizers, by name, such as "exchange".

        The settings of the Keras optimizer are not among them.
        """
        tables = {}
        for table in [v.table for v in self.variables if isinstance(v, TableProxy)]:
            rate: Any = self._optimizers[table.name].learning_rate
            tables[table.name] = [table.optimizer, rate.get_config() if callable(rate) else rate]
        return {
            "reduction": self.reduction,
            "exchange": self.exchange,
            "wire_dtype": self.wire_dtype,
            "clipping": self.clipping,
            "tables' optimizers": tables,
        }

    def event_time(self) -> tf.Tensor:
        """Returns the latest event time that this rank's `EventClock` has seen, int64 scalar.

        It is in the unit of `Eviction(unseen_time=...)`. It is `native.NO_TIME`, the smallest
        int64, before the first event, and always if the model has no `EventClock`.
        """
        if self._event_clock is None:
            return tf.constant(native.NO_TIME, tf.int64)
        return self._event_clock.latest

    def add_table(self, proxy: TableProxy, optimizer: SparseOptimizer) -> None:
        """Sets a table's optimizer. Must be called before the first `apply` with the table.

        Args:
            proxy: Keras variable that stands for the table.
            optimizer: Optimizer of the table's rows.

        Raises:
            ConfigError: The table evicts rows by event time, but there is no clock; its regularizer
                is unknown; or it is in files, and the optimizer changes every row.
            StoreError: The table is in files and has rows of another optimizer.
        """
        table = proxy.table
        eviction = table.config.eviction
        if eviction is not None and eviction.unseen_time is not None and self._event_clock is None:
            raise ConfigError(
                f"Table '{table.name}' evicts rows by event time, which needs DistributedOptimizer("
                "event_clock=tfhybrid.layers.EventClock()). "
                f"Received: unseen_time={eviction.unseen_time!r} without a clock"
            )
        settings = optimizer.native(table.config.regularizer, table.config.lazy)
        table.set_optimizer(settings, optimizer.state_shape(table.dim))
        self._optimizers[table.name] = optimizer

    def update_of(self, proxies: Sequence[TableProxy]) -> UpdateRef:
        """Returns a reference to the update of some tables, for `apply` and ops.

        Args:
            proxies: Keras variables that stand for the tables.

        Raises:
            ConfigError: The optimizer was not built for one of the tables.
            StoreError: A table is not open.
            NotInitializedError: The job has ended.
        """
        unknown = [p.table.name for p in proxies if p.table.name not in self._optimizers]
        if unknown:
            raise ConfigError(
                "An optimizer can only train the tables it was built for: create one for each "
                f"model. Received: the new tables {unknown}"
            )
        choices = UpdateChoices(
            exchange=self.exchange,
            reduction=self.reduction,
            wire_dtype=self.wire_dtype,
            clipping=self.clipping.kind,
            clip_limit=self.clipping.limit,
        )
        dims = {proxy.table.name: proxy.table.dim for proxy in proxies}
        update = current_job().engine.open_update(self.name, dims, choices)
        tables = tuple(proxy.table_ref for proxy in proxies)
        sharded = any(proxy.table.is_sharded for proxy in proxies)
        return UpdateRef(tables, update.number, self.exchange, sharded)

    def learning_rates(
        self,
        proxies: Sequence[TableProxy],
        keras_rate: Callable[[], tf.Tensor],
        iterations: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the rates of tables, float32 `[tables]`.

        Args:
            proxies: Proxies of the tables.
            keras_rate: Function that returns the learning rate for tables without their own.
            iterations: Number of updates so far, for schedules.
        """
        # Once for all tables: a schedule is a graph of its own.
        shared = functools.cache(lambda: tf.cast(keras_rate(), tf.float32))
        return tf.stack([self._rate(proxy, shared, iterations) for proxy in proxies])

    def apply(self, update: UpdateRef, contribution: Contribution, numbers: StepNumbers) -> None:
        """Updates the tables with the gradients of all ranks. Every rank must call it.

        Args:
            update: Reference from `update_of`.
            contribution: Gradients of this rank.
            numbers: Learning rates and the dense part of the norm of the step.

        Raises:
            tf.errors.OpError: When the ops run: an earlier update failed, or the job or another
                rank has ended.
            NotInitializedError: The job has ended.
        """
        if update.exchange == "all_ranks":
            message = update_ops.pack_gradients(update, contribution)
            messages = distributed.gather_messages(message, f"tfhybrid.{self.name}")
            update_ops.apply_gathered(update, messages, numbers)
            return
        posted = update_ops.post_gradients(update, contribution, numbers)
        job = current_job()
        if job.is_leader and job.several_hosts and not update.sharded:
            # Outside a graph, `posted` is None and the order of calls suffices.
            with tf.control_dependencies([posted] if posted is not None else []):
                exchange_between_hosts(update, numbers, f"tfhybrid.{self.name}")

    def _rate(
        self, proxy: TableProxy, keras_rate: Callable[[], tf.Tensor], iterations: tf.Tensor
    ) -> tf.Tensor:
        own = self._optimizers[proxy.table.name].learning_rate
        if own is None:
            return keras_rate()
        if isinstance(own, RateFactor):
            return keras_rate() * own.factor
        rate = own(iterations) if callable(own) else own
        return tf.cast(rate, tf.float32) * self.rate_scale


def checked_gradients(
    proxies: Sequence[TableProxy], gradients: Sequence[Any]
) -> list[tf.IndexedSlices]:
    """Checks the gradients of tables, and converts their values and indices to tensors.

    Args:
        proxies: Keras variables that stand for the tables, for the names in errors.
        gradients: Gradient of each of these tables, in the same order.

    Returns:
        The gradients, in the same order.

    Raises:
        UnsupportedError: A gradient is not a `tf.IndexedSlices`; it may be `None` or dense.
    """
    for proxy, gradient in zip(proxies, gradients, strict=True):
        if not isinstance(gradient, tf.IndexedSlices):
            raise UnsupportedError(
                f"The gradient of table '{proxy.table.name}' must be the tf.IndexedSlices that the "
                "tape returned; keep it unchanged, or change its values with "
                f"tf.IndexedSlices. Received: {gradient!r}"
            )
    return [
        tf.IndexedSlices(
            tf.convert_to_tensor(gradient.values),
            tf.convert_to_tensor(gradient.indices),
            gradient.dense_shape,
        )
        for gradient in gradients
    ]


def no_gradients(proxies: Sequence[TableProxy]) -> list[tf.IndexedSlices]:
    """Returns gradients without keys, for a rank without samples.

    Args:
        proxies: Keras variables that stand for the tables.

    Returns:
        A gradient for each table, in the same order.
    """
    dims = [proxy.table.dim for proxy in proxies]
    none = tf.zeros([0], tf.int64)
    return [
        tf.IndexedSlices(tf.zeros([0, dim]), none, tf.constant([0, dim], tf.int64)) for dim in dims
    ]


def samples_in(gradients: Sequence[tf.IndexedSlices]) -> tf.Tensor:
    """Returns the number of samples of the batch, int64; 1 if no lookup recorded it.

    Args:
        gradients: Gradients of tables.
    """
    for slices in gradients:
        samples = samples_of(slices)
        if samples is not None:
            return samples
    return tf.constant(1, tf.int64)
