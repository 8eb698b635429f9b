"""A Keras optimizer whose step spans all ranks and updates the tables."""

from __future__ import annotations

import itertools
from typing import Any

from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3, VERSION, schedule_of
from tfhybrid.config.table_optimizers import check_rate
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.job import current_job
from tfhybrid.layers import EventClock
from tfhybrid.optimizers.clipping import clipping_of
from tfhybrid.optimizers.distributed_class import Distributed, OfKeras2, OfKeras3
from tfhybrid.optimizers.distributed_step import DistributedStep
from tfhybrid.optimizers.sparse_update import SparseUpdate

_ordinals = itertools.count()

# Options that Keras would apply only to dense variables, and what to use instead.
_REFUSED = {
    "gradient_accumulation_steps": "use DistributedOptimizer(backward_passes_per_step=...)",
    "use_ema": "the average would leave the tables out",
    "loss_scale_factor": "use the policy 'mixed_bfloat16', which needs no scaling",
}


def DistributedOptimizer(
    optimizer: keras.optimizers.Optimizer | str,
    *,
    reduction: str = "frequency",
    exchange: str = "leaders",
    wire_dtype: str = "float32",
    on_nonfinite: str = "raise",
    event_clock: EventClock | None = None,
    backward_passes_per_step: int = 1,
    update: str = "batch",
    dense: str = "auto",
) -> keras.optimizers.Optimizer:
    """Wraps a Keras optimizer so that its step combines all ranks and updates the tables.

    Dense gradients are averaged over the samples of all ranks, and every rank applies them to its
    copy. Sparse gradients go to the leader of each host, which sums them by key, divides the sums
    according to `reduction`, and applies them once. Tables without their own optimizer use the
    native counterpart of the Keras optimizer and follow its learning rate. `clipvalue`, `clipnorm`
    and `global_clipnorm` clip the reduced gradients: a table's gradients in a step, each key once,
    count as those of one variable.

    Ranks may have different numbers of batches, and batches of different sizes. In `fit`, a rank
    without batches continues to take part with zero samples. A custom loop calls `optimizer.join()`
    when its data ends.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or its name. It is copied and must be new.
        reduction: `"frequency"` divides a key's sum by the number of ranks in which it occurred;
            `"mean"` weights ranks by their samples and divides by all samples (N ranks with batches
            of B then equal one rank with N * B); `"sum"` does not divide.
        exchange: Route of sparse gradients between hosts. `"leaders"` merges them in each host's
            shared memory, and the leaders exchange the merged gradients by an allgather. `"owner"`
            merges them too, but only one leader reduces each key. `"all_ranks"` is an allgather of
            all ranks' gradients. On one host the first two are the same and use only shared memory.
            All routes give the same bits with the same `dense`; `"auto"` depends on the route.
        wire_dtype: Type of gradients between hosts, `"float32"` or `"bfloat16"`, which halves their
            bytes. All hosts get the same bits with either.
        on_nonfinite: Reaction to a gradient that is NaN or infinite: `"raise"` an error on all
            ranks, or `"skip"` the step on all ranks with a warning. Both name the key and table, or
            the variable, and the rank. A skipped step counts as a step.
        event_clock: `layers.EventClock` for tables that evict rows by event time. The latest
            time over all ranks counts.
        backward_passes_per_step: Number of `apply` calls whose gradients are summed before they are
            exchanged and applied, as in `hvd.DistributedOptimizer`.
        update: Unit of an update: `"batch"`, or `"pass"`, which sums the gradients of all batches
            of a pass and applies them once, so rows and dense weights do not change within a pass.
            The data must then come from `data.announce(..., optimizer=...)`. A pass ends for all
            ranks when it ends for the first one, because that rank has trained all its batches, its
            bytes are used up or its data end.
        dense: Way to add up dense gradients: `"horovod"` is Horovod's allreduce among all ranks;
            `"hierarchical"` adds in each host's shared memory in the order of ranks, and uses
            Horovod only among the leaders. `"auto"` is hierarchical if hosts have several ranks and
            no GPUs, unless `exchange` is `"all_ranks"`.

    Returns:
        An instance of a subclass of the optimizer's class, for `model.compile` or a custom loop. It
        has an additional method `join`.

    Raises:
        UnsupportedError: The optimizer has an option that would affect only dense variables.
        ConfigError: An argument is invalid, or the optimizer was already used.
        ValueError: Keras has no optimizer of that name.
        NotInitializedError: `tfhybrid.init()` was not called.

    Example:

    >>> import keras
    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.05))
    >>> type(optimizer).__name__
    'Adagrad'
    """
    current_job()
    if isinstance(optimizer, str):
        optimizer = keras.optimizers.get(optimizer)
    if hasattr(optimizer, "inner_optimizer"):
        raise UnsupportedError(
            "LossScaleOptimizer would scatter sparse gradients and branch on each rank alone. "
            "Use the policy 'mixed_bfloat16', which needs no loss scaling."
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigError(
            "DistributedOptimizer needs one of tf.keras.optimizers, here of Keras "
            f"{VERSION}, or its name. Received: {type(optimizer).__module__}."
            f"{type(optimizer).__qualname__}"
        )
    if int(optimizer.iterations) > 0 or isinstance(optimizer, Distributed):
        raise ConfigError(
            "DistributedOptimizer needs an optimizer that is neither used nor wrapped yet. "
            f"Received: {optimizer!r}"
        )
    if schedule_of(optimizer) is None:
        check_rate(float(optimizer.learning_rate), "an optimizer")
    for option, instead in _REFUSED.items():
        if getattr(optimizer, option, None):
            raise UnsupportedError(
                f"{option} is not supported with tables: {instead}. "
                f"Received: {option}={getattr(optimizer, option)}"
            )
    base = type(optimizer)
    over_ranks = OfKeras3 if IS_KERAS_3 else OfKeras2
    distributed_class: Any = type(base.__name__, (over_ranks, base), {})
    wrapped = base.from_config.__func__(distributed_class, optimizer.get_config())
    clipping = clipping_of(wrapped)
    if clipping.kind == "global_norm":
        wrapped.global_clipnorm = None  # the norm includes tables, which Keras does not see
    name = f"update_{next(_ordinals)}"
    sparse = SparseUpdate(reduction, exchange, wire_dtype, clipping, event_clock, name)
    wrapped.start_distributed(
        DistributedStep(sparse, on_nonfinite, backward_passes_per_step, dense, update)
    )
    return wrapped
