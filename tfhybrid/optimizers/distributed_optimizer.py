"""A Keras optimizer whose step spans all ranks and reaches the tables."""

from __future__ import annotations

import itertools
from typing import Any

from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3, VERSION
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.job import current_job
from tfhybrid.layers import EventClock
from tfhybrid.optimizers.clipping import clipping_of
from tfhybrid.optimizers.distributed_class import Distributed, OfKeras2, OfKeras3
from tfhybrid.optimizers.distributed_step import DistributedStep
from tfhybrid.optimizers.sparse_update import SparseUpdate

_ordinals = itertools.count()

# Options that Keras applies to what it sees, the dense side alone, and what to do instead.
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
    dense: str = "horovod",
) -> keras.optimizers.Optimizer:
    """Makes a Keras optimizer work over all ranks, for dense weights and tables.

    Dense gradients are averaged over the samples of all ranks and applied by every rank to its own
    copy. Sparse gradients go to the leader of each host; for each key they are summed, divided as
    `reduction` says, and applied once per host. Tables without an optimizer of their own take the
    optimizer's native twin and follow its learning rate. `clipvalue`, `clipnorm` and
    `global_clipnorm` clip what the reduction over ranks gives: a table's gradients of a step are
    one variable's, each key once.

    Ranks may have different numbers of batches, and short ones. In `fit` a rank that has none left
    goes on to take part without samples; a loop of one's own calls `optimizer.join()` when its data
    ends.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or its name. It is copied and must be new.
        reduction: `"frequency"` divides a key's sum by the number of ranks in which it occurred;
            `"mean"` weighs ranks by their samples and divides by the samples of all (N ranks with
            batches of B then equal one rank with N * B), `"sum"` divides by nothing.
        exchange: How sparse gradients travel between hosts: `"leaders"`, each host's merged in
            shared memory, then an allgather among leaders; `"owner"`, likewise, but each key is
            reduced by one leader; `"all_ranks"`, an allgather of every rank's own. On one host the
            first two are the same: shared memory alone. All give the same bits.
        wire_dtype: `"bfloat16"` halves the gradients' bytes between hosts; all hosts still get the
            same bits.
        on_nonfinite: What becomes of a step in which a gradient is NaN or infinite: `"raise"` an
            error on all ranks, or `"skip"` the step on all ranks, with a warning. Either names the
            key and table, or the variable, and the rank. A skipped step counts as one.
        event_clock: A `layers.EventClock`, for tables that evict rows by event time. The latest
            time over all ranks counts.
        backward_passes_per_step: Number of `apply` calls whose gradients are summed before they are
            exchanged and applied, as in `hvd.DistributedOptimizer`.
        update: `"pass"` sums the gradients of a pass, as `backward_passes_per_step` does those of
            its calls, and applies them once: rows and dense weights stay as they are within a pass.
            The data must come from `data.announce(..., optimizer=...)`. The first rank whose pass
            ends, because it has all its batches, its bytes are used up or the data end, ends it for
            all. With `"batch"`, passes do not matter.
        dense: How dense gradients are added up over ranks: `"horovod"`, by its ring allreduce among
            all ranks; `"hierarchical"`, in each host's shared memory in the order of ranks, and by
            the ring among the leaders of hosts, for hosts with several ranks and without GPUs.

    Returns:
        An optimizer of the same class, for `model.compile` or a custom loop, with a method `join`.

    Raises:
        UnsupportedError: It has an option that would act on the dense side alone.
        ConfigError: An argument is unknown or cannot be, or the optimizer was used.

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
            "DistributedOptimizer wants one of tf.keras.optimizers, here of Keras "
            f"{VERSION}, or its name. Received: {type(optimizer).__module__}."
            f"{type(optimizer).__qualname__}"
        )
    if int(optimizer.iterations) > 0 or isinstance(optimizer, Distributed):
        raise ConfigError(
            "DistributedOptimizer wants an optimizer that was not used yet, and wraps it once. "
            f"Received: {optimizer!r}"
        )
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
        wrapped.global_clipnorm = None  # the norm is that of tables too, which Keras does not see
    name = f"update_{next(_ordinals)}"
    sparse = SparseUpdate(reduction, exchange, wire_dtype, clipping, event_clock, name)
    wrapped.start_distributed(
        DistributedStep(sparse, on_nonfinite, backward_passes_per_step, dense, update)
    )
    return wrapped
