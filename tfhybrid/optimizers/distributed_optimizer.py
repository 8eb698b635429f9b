"""A Keras optimizer whose step spans all ranks and reaches the tables."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.layers import TableProxy
from tfhybrid.optimizers import sparse
from tfhybrid.optimizers.sparse_update import SparseUpdate
from tfhybrid.optimizers.twin import twin
from tfhybrid.store import current_job

_log = logging.getLogger("tfhybrid.optimizers")
_ordinals = itertools.count()

# Options that Keras applies to what it sees, the dense side alone, and what to do instead.
_REFUSED = {
    "gradient_accumulation_steps": "raise the batch size instead",
    "global_clipnorm": "its norm would leave the tables out",
    "clipnorm": "it would leave the tables out",
    "clipvalue": "it would leave the tables out",
    "use_ema": "the average would leave the tables out",
    "loss_scale_factor": "use the policy 'mixed_bfloat16', which needs no scaling",
}


def DistributedOptimizer(
    optimizer: keras.optimizers.Optimizer | str,
    *,
    reduction: str = "frequency",
    sync: str | None = None,
) -> keras.optimizers.Optimizer:
    """Makes a Keras optimizer work over all ranks, for dense weights and tables.

    Dense gradients are averaged over the ranks and applied by every rank to its own copy. Sparse
    gradients go to the leader of each host; for each key they are summed, divided as `reduction`
    says, and applied once per host. Tables without an optimizer of their own take the optimizer's
    native twin and follow its learning rate.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or its name. It is copied and must be new.
        reduction: `"frequency"` divides a key's sum by the number of ranks in which it occurred,
            `"mean"` by the number of ranks (N ranks with batches of B then equal one rank with
            N * B), `"sum"` by nothing.
        sync: How sparse gradients reach the leader that applies them: `"shared_memory"`, on one
            host; `"allgather"`, over Horovod. By default the former where it can be. Both give the
            same bits.

    Returns:
        An optimizer of the same class, for `model.compile` or a custom loop.

    Raises:
        UnsupportedError: It has an option that would act on the dense side alone.
        ConfigError: `reduction` or `sync` is unknown or cannot be, or the optimizer was used.

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
    wrapped.start_sparse(SparseUpdate(reduction, sync, f"update_{next(_ordinals)}"))
    return wrapped


# For the type checker alone: what stands behind the mixin.
_KerasOptimizer: Any = keras.optimizers.Optimizer if TYPE_CHECKING else object


class _Distributed(_KerasOptimizer):
    """What `DistributedOptimizer` puts in front of a Keras optimizer class.

    Keras sees the dense variables alone; `build` and `apply` split what they are given.
    """

    def start_sparse(self, update: SparseUpdate) -> None:
        """Takes the sparse half of the step."""
        self.sparse_update = update

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
        super().build([v for v in variables if not isinstance(v, TableProxy)])
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
        pairs = [
            (gradient, variable)
            for gradient, variable in zip(grads, trainable_variables, strict=True)
            if gradient is not None
        ]
        sparse_pairs = [pair for pair in pairs if isinstance(pair[1], TableProxy)]
        dense_pairs = [pair for pair in pairs if not isinstance(pair[1], TableProxy)]
        if sparse_pairs:
            gradients, proxies = zip(*sparse_pairs, strict=True)
            self.sparse_update.apply(
                proxies,
                gradients,
                keras_rate=lambda: self.learning_rate,
                iterations=tf.convert_to_tensor(self.iterations),
            )
        if dense_pairs:
            gradients, variables = zip(*dense_pairs, strict=True)
            averaged = distributed.average(
                [tf.convert_to_tensor(gradient) for gradient in gradients],
                f"tfhybrid.{self.sparse_update.name}.dense",
            )
            super().apply(averaged, list(variables))
        else:
            self._iterations.assign_add(1)
