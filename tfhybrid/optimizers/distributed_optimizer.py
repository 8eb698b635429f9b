"""A Keras optimizer whose step spans all ranks and reaches the tables."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.layers import EventClock, TableProxy
from tfhybrid.optimizers import sparse
from tfhybrid.optimizers.clipping import clipping_of
from tfhybrid.optimizers.distributed_step import DistributedStep, Trained
from tfhybrid.optimizers.sparse_update import SparseUpdate, checked_gradients
from tfhybrid.optimizers.twin import twin
from tfhybrid.store import current_job

_log = logging.getLogger("tfhybrid.optimizers")
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
    sync: str | None = None,
    wire_dtype: str = "float32",
    on_nonfinite: str = "raise",
    event_clock: EventClock | None = None,
    backward_passes_per_step: int = 1,
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
        sync: How sparse gradients reach the leaders that apply them: `"shared_memory"`, on one
            host; between hosts, of which each has merged its ranks', `"host_allgather"` or
            `"owner_reduce"`; or `"allgather"` over all ranks, unmerged. By default shared memory on
            one host, and on several what a cost model finds the faster of the two. All give the
            same bits.
        wire_dtype: `"bfloat16"` halves the gradients' bytes between hosts; all hosts still get the
            same bits.
        on_nonfinite: What becomes of a step in which a gradient is NaN or infinite: `"raise"` an
            error on all ranks, or `"skip"` the step on all ranks, with a warning. Either names the
            key and table, or the variable, and the rank. A skipped step counts as one.
        event_clock: A `layers.EventClock`, for tables that evict rows by event time. The latest
            time over all ranks counts.
        backward_passes_per_step: Number of `apply` calls whose gradients are summed before they are
            exchanged and applied, as in `hvd.DistributedOptimizer`.

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
    optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise UnsupportedError(
            "LossScaleOptimizer would scatter sparse gradients and branch on each rank alone. "
            "Use the policy 'mixed_bfloat16', which needs no loss scaling."
        )
    if optimizer.built or isinstance(optimizer, _Distributed):
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
    distributed_class: Any = type(base.__name__, (_Distributed, base), {})
    wrapped = distributed_class.from_config(optimizer.get_config())
    clipping = clipping_of(wrapped)
    if clipping.kind == "global_norm":
        wrapped.global_clipnorm = None  # the norm is that of tables too, which Keras does not see
    name = f"update_{next(_ordinals)}"
    update = SparseUpdate(reduction, sync, wire_dtype, clipping, event_clock, name)
    wrapped.start_distributed(DistributedStep(update, on_nonfinite, backward_passes_per_step))
    return wrapped


def _check_settled() -> None:
    memory = current_job().memory
    if memory is not None and not memory.settled:
        raise ConfigError(
            "A job with init(resume='memory') calls tfhybrid.checkpoint.restore(model, directory) "
            "before its first step: there it is chosen whether its tables come from memory."
        )


# For the type checker alone: what stands behind the mixin.
_KerasOptimizer: Any = keras.optimizers.Optimizer if TYPE_CHECKING else object


class _Distributed(_KerasOptimizer):
    """What `DistributedOptimizer` puts in front of a Keras optimizer class.

    Keras sees the dense variables alone; `build` and `apply` split what they are given.
    """

    def start_distributed(self, step: DistributedStep) -> None:
        """Takes what belongs to all ranks together."""
        # In one plain object: Keras would take variables among attributes for its own.
        self.distributed_step = step
        self.sparse_update = step.sparse_update

    def build(self, variables: Sequence[Any]) -> None:
        """Builds the dense state for dense variables and gives the tables their optimizer."""
        if keras.config.dtype_policy().name == "mixed_float16":
            raise UnsupportedError(
                "mixed_float16 scales the loss in a way that would scatter sparse gradients and "
                "branch on each rank alone. Use the policy 'mixed_bfloat16'."
            )
        if self.built:
            return
        # Not an attribute of this object: Keras would take the variables for the optimizer's own.
        self.sparse_update.variables = list(variables)
        proxies = [v for v in variables if isinstance(v, TableProxy)]
        for proxy in proxies:
            own = proxy.table.config.optimizer
            self.sparse_update.add_table(proxy, twin(self) if own is None else sparse.get(own))
        dense = [v for v in variables if not isinstance(v, TableProxy)]
        super().build(dense)
        self.distributed_step.build(self._trained(proxies, dense))
        memory = current_job().memory
        if memory is not None and proxies:
            memory.count_optimizer()
        _log.info(
            "%d table(s), %d dense variable(s); sparse gradients through %s, reduced by %s",
            len(proxies),
            len(self._trainable_variables),
            self.sparse_update.sync.replace("_", " "),
            self.sparse_update.reduction,
        )

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Averages and applies dense gradients, gathers and applies sparse ones."""
        if trainable_variables is None:
            trainable_variables = self.sparse_update.variables
        if not self.built:
            self.build(trainable_variables)
        _check_settled()
        pairs = [
            (gradient, variable)
            for gradient, variable in zip(grads, trainable_variables, strict=True)
            if gradient is not None
        ]
        proxies = [variable for _, variable in pairs if isinstance(variable, TableProxy)]
        sparse_gradients = checked_gradients(
            proxies, [gradient for gradient, v in pairs if isinstance(v, TableProxy)]
        )
        dense_pairs = [(g, v) for g, v in pairs if not isinstance(v, TableProxy)]
        self.distributed_step.run(
            self._trained(proxies, [variable for _, variable in dense_pairs]),
            sparse_gradients,
            [tf.convert_to_tensor(gradient) for gradient, _ in dense_pairs],
        )

    def join(self) -> None:
        """Takes part in the steps of other ranks, without samples, until all have come here.

        For training loops of one's own, once this rank's data has ended; every rank must call it.
        `fit` does at its end, and the callbacks of tfhybrid do before what they do together. The
        model is not run meanwhile, and ranks without samples weigh nothing.

        Example:

        ```python
        for batch in my_share:  # of any length
            train_step(batch)
        optimizer.join()
        ```
        """
        self.distributed_step.join()

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Joins the other ranks; `fit` calls it when this rank's epochs are over."""
        self.join()
        super().finalize_variable_values(var_list)

    def _trained(self, proxies: Sequence[TableProxy], variables: Sequence[Any]) -> Trained:
        def apply_dense(gradients: list[tf.Tensor]) -> None:
            if variables:
                super(_Distributed, self).apply(gradients, list(variables))
            else:
                self._iterations.assign_add(1)

        return Trained(
            proxies,
            variables,
            rates=lambda: self.sparse_update.learning_rates(
                proxies, lambda: self.learning_rate, tf.convert_to_tensor(self.iterations)
            ),
            apply_dense=apply_dense,
            count=lambda: self._iterations.assign_add(1),
        )
