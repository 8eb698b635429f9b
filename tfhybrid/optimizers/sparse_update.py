"""The sparse half of a step: the gradients of all ranks reach the leader, which applies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.layers import TableProxy
from tfhybrid.ops import table_ops
from tfhybrid.optimizers.sparse import SparseOptimizer
from tfhybrid.store import current_job

REDUCTIONS = ("frequency", "sum", "mean")
SYNCS = ("shared_memory", "allgather")


class SparseUpdate:
    """Applies sparse gradients to tables, the same on every host.

    Args:
        reduction: What a key's summed gradient is divided by: `"frequency"`, the number of ranks
            in which it occurred; `"mean"`, the number of ranks; `"sum"`, nothing.
        sync: How gradients reach the leader, one of `SYNCS`, or `None` for the better one.
        name: Tells its collectives from those of others.
    """

    def __init__(self, reduction: str, sync: str | None, name: str) -> None:
        if reduction not in REDUCTIONS:
            raise ConfigError(f"reduction is one of {REDUCTIONS}. Received: {reduction!r}")
        self.reduction = reduction
        self.sync = _checked_sync(sync, set(current_job().hosts))
        self.name = name
        self.variables: list[Any] = []  # all that the optimizer was built for, tables included
        self._optimizers: dict[str, SparseOptimizer] = {}
        # What LearningRateWarmup multiplies the tables' own rates by.
        self.rate_scale = tf.Variable(1.0, trainable=False, name=f"{name}_rate_scale")

    def add_table(self, proxy: TableProxy, optimizer: SparseOptimizer) -> None:
        """Gives a table its optimizer; before the first `apply` that names it."""
        proxy.table.set_optimizer(optimizer.native, optimizer.slots)
        self._optimizers[proxy.table.name] = optimizer

    def apply(
        self,
        proxies: Sequence[TableProxy],
        gradients: Sequence[tf.IndexedSlices],
        *,
        keras_rate: Callable[[], tf.Tensor],
        iterations: tf.Tensor,
    ) -> None:
        """Updates the tables with the gradients of all ranks.

        Args:
            proxies: Of the tables, each once.
            gradients: One per table.
            keras_rate: Gives the learning rate that tables without their own follow.
            iterations: Updates so far, for schedules.
        """
        unknown = [p.table.name for p in proxies if p.table.name not in self._optimizers]
        if unknown:
            raise ConfigError(
                "An optimizer trains the tables that it was built for, and no others: give each "
                f"model one of its own. Received: the new tables {unknown}"
            )
        for proxy, gradient in zip(proxies, gradients, strict=True):
            if not isinstance(gradient, tf.IndexedSlices):
                raise UnsupportedError(
                    f"The gradient of table '{proxy.table.name}' is the tf.IndexedSlices that the "
                    "tape returned; leave it as it is, or change its values with "
                    f"tf.IndexedSlices. Received: {gradient!r}"
                )
        refs = [table_ops.TableRef(p.table.name, p.table.dim, p.handle) for p in proxies]
        rates = tf.stack([self._rate(proxy, keras_rate, iterations) for proxy in proxies])
        update = table_ops.UpdateRef(self.name, current_job().hosts, self.reduction)
        if self.sync == "shared_memory":
            table_ops.post_gradients(refs, gradients, rates, update)
        else:
            message = table_ops.pack_gradients(refs, gradients)
            messages = distributed.gather_messages(message, f"tfhybrid.{self.name}")
            table_ops.apply_gathered(refs, messages, rates, update)

    def _rate(
        self, proxy: TableProxy, keras_rate: Callable[[], tf.Tensor], iterations: tf.Tensor
    ) -> tf.Tensor:
        own = self._optimizers[proxy.table.name].learning_rate
        if own is None:
            return tf.cast(keras_rate(), tf.float32)
        rate = own(iterations) if callable(own) else own
        return tf.cast(rate, tf.float32) * self.rate_scale


def _checked_sync(sync: str | None, hosts: set[int]) -> str:
    if sync is None:
        return "shared_memory" if len(hosts) == 1 else "allgather"
    if sync not in SYNCS:
        raise ConfigError(f"sync is one of {SYNCS}, or None. Received: {sync!r}")
    if sync == "shared_memory" and len(hosts) > 1:
        raise ConfigError(
            "sync='shared_memory' reaches the ranks of one host; on several give 'allgather', or "
            f"None. Received: {len(hosts)} hosts"
        )
    return sync
