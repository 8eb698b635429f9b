"""Mixins in front of a Keras optimizer's class that make its step span all ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf
from tensorflow import keras
from typing_extensions import override

from tfhybrid import distributed
from tfhybrid._keras import IS_KERAS_3, schedule_of
from tfhybrid.config import table_optimizers
from tfhybrid.core.meetings import Meeting
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.job import current_job
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.optimizers.distributed_step import DistributedStep, Trained
from tfhybrid.optimizers.fit_callbacks import refuse_incomplete_savers
from tfhybrid.optimizers.recipe import recipe_of, unseen_of
from tfhybrid.optimizers.sparse_update import checked_gradients
from tfhybrid.optimizers.twin import twin

_log = logging.getLogger("tfhybrid.optimizers")


def _check_settled() -> None:
    resumption = current_job().resumption
    if resumption is not None and not resumption.settled:
        raise ConfigError(
            "A job with init(resume='memory') must call tfhybrid.checkpoint.restore(model, "
            "directory) before its first step, which chooses whether tables come from memory."
        )


def _warn_of_xla() -> None:
    if IS_KERAS_3 and distributed.rank() == 0 and tf.config.list_physical_devices("GPU"):
        _log.warning(
            "The model has no table. On GPUs Keras 3 compiles the step of such a model with XLA, "
            "which has no collectives: give compile(..., jit_compile=False)."
        )


def _outside_of_graphs(create: Callable[[], None]) -> None:
    """Calls a function that creates variables, on a thread where nothing is traced.

    TensorFlow traces a function once more if its first trace has created variables, also in
    `tf.init_scope`. It sees those of its own thread.
    """
    if not tf.inside_function():
        create()
        return
    with tf.init_scope():
        device = tf.constant(0.0).device  # of a `tf.device` around the step

    def create_there() -> None:
        with tf.device(device):
            create()

    with ThreadPoolExecutor(1) as outside:
        outside.submit(create_there).result()


# Only for the type checker: the class behind the mixin.
_KerasOptimizer: Any = keras.optimizers.Optimizer if TYPE_CHECKING else object


class Distributed(_KerasOptimizer):
    """Mixin that `DistributedOptimizer` puts in front of an optimizer class of Keras 2 or 3.

    Keras sees only the dense variables; `build` and `step` separate them from the tables.
    """

    def start_distributed(self, step: DistributedStep) -> None:
        """Sets the part that needs all ranks; must be called once, before any other method.

        Args:
            step: Part of a step that exchanges gradients between ranks.
        """
        # One plain object holds all variables: Keras would track variables that are attributes.
        self.distributed_step = step
        self.sparse_update = step.sparse_update

    @classmethod
    def from_config(cls, *_config: Any, **_options: Any) -> NoReturn:
        """Refuses to copy the optimizer, whose configuration lacks the distributed part.

        Raises:
            UnsupportedError: Always.
        """
        name = cls.__name__
        raise UnsupportedError(
            "A copy of a DistributedOptimizer would train each rank separately: its configuration "
            "is that of the Keras optimizer. Create a new one: tfhybrid.DistributedOptimizer("
            f"keras.optimizers.{name}.from_config(optimizer.get_config()), ...)"
        )

    def build(self, variables: Sequence[Any]) -> None:
        """Creates the state of dense variables, and sets the tables' optimizers.

        Every rank must call it, with the same tables and variables. A later call does nothing.

        Args:
            variables: Variables of the model, dense ones and `TableProxy`.

        Raises:
            ConfigError: The settings of the ranks differ, a table lacks an event clock, its
                optimizer or regularizer is unknown, or its optimizer cannot update a table in
                files.
            UnsupportedError: The precision policy is mixed_float16, or a table without its own
                optimizer needs one that has no native counterpart.
            StoreError: A table in files has rows of another optimizer.
            NotInitializedError: The job has ended.
        """
        if keras.mixed_precision.global_policy().name == "mixed_float16":
            raise UnsupportedError(
                "mixed_float16 scales the loss in a way that would scatter sparse gradients and "
                "branch on each rank alone. Use the policy 'mixed_bfloat16'."
            )
        if not self.distributed_step.built:
            _outside_of_graphs(lambda: self._build(variables))

    def _build(self, variables: Sequence[Any]) -> None:
        # Not an attribute of the optimizer: Keras would track the variables as its own.
        self.sparse_update.variables = list(variables)
        proxies = [v for v in variables if isinstance(v, TableProxy)]
        for proxy in proxies:
            own = proxy.table.config.optimizer
            self.sparse_update.add_table(
                proxy, twin(self) if own is None else table_optimizers.get(own)
            )
        dense = [v for v in variables if not isinstance(v, TableProxy)]
        super().build(dense)
        job = current_job()
        # A meeting: a rank that steps another optimizer meanwhile would never reach the comparison.
        with (
            distributed.call("DistributedOptimizer.build"),
            job.engine.meeting(Meeting("build", self.sparse_update.name)),
        ):
            distributed.check_same(recipe_of(self) | unseen_of(proxies))
            self.distributed_step.choose_dense()
        self.distributed_step.build(self._trained(proxies, dense))
        if job.resumption is not None and proxies:
            job.resumption.count_optimizer()
        _log.info(
            "%d table(s), %d dense variable(s); dense gradients: %s; "
            "sparse gradients: exchange=%s, reduction=%s",
            len(proxies),
            len(dense),
            self.distributed_step.dense,
            self.sparse_update.exchange,
            self.sparse_update.reduction,
        )
        if not proxies:
            _warn_of_xla()

    def step(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Applies the gradients of all ranks to dense variables and tables, as one step.

        Every rank must call it, or `join`. Calls `build` first if it was not called.

        Args:
            gradients: Gradients of this rank, in the order of `variables`; `None` for a variable
                without one.
            variables: Dense variables and `TableProxy`.

        Raises:
            ConfigError: The optimizer was not built for one of the tables; or the job has
                `resume="memory"`, and `tfhybrid.checkpoint.restore` was not called.
            UnsupportedError: The gradient of a table is not a `tf.IndexedSlices`; or a callback of
                `fit` would save the model without its tables.
            tf.errors.OpError: When the step runs: on all ranks, a gradient is not finite; or an
                earlier update failed, or another rank has ended.
            StoreError: `build` was not called, and a table in files has rows of another optimizer.
            NotInitializedError: The job has ended.
        """
        if not self.distributed_step.built:
            self.build(variables)
        _check_settled()
        pairs = [
            (gradient, variable)
            for gradient, variable in zip(gradients, variables, strict=True)
            if gradient is not None
        ]
        proxies = [variable for _, variable in pairs if isinstance(variable, TableProxy)]
        refuse_incomplete_savers(proxies)
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
        """Joins the other ranks' steps with zero samples until every rank has called `join`.

        Call it in custom training loops when this rank's data has ended; every rank must call it.
        `fit` calls it at its end, and tfhybrid's callbacks call it before they use collectives. The
        model does not run in these steps, and ranks without samples have no weight.

        Raises:
            ConfigError: There are several ranks, and the optimizer is not built.
            tf.errors.OpError: Another rank has ended, or an earlier update failed.

        Example:

        ```python
        for batch in my_batches:  # of any length
            train_step(batch)
        optimizer.join()
        ```
        """
        self.distributed_step.join()

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Joins the other ranks' steps until every rank is finished.

        Keras calls it at the end of `fit`.

        Args:
            var_list: Trainable variables of the model.

        Raises:
            ConfigError: There are several ranks, and the optimizer is not built.
            tf.errors.OpError: Another rank has ended, or an earlier update failed.
        """
        self.join()
        super().finalize_variable_values(var_list)

    def apply_dense(self, gradients: list[tf.Tensor], variables: Sequence[Any]) -> None:
        """Applies reduced gradients to dense variables, as Keras does, and counts the step.

        Args:
            gradients: Gradients, averaged over all ranks.
            variables: Dense variable of each gradient.

        Raises:
            NotImplementedError: The subclass for this Keras does not define it.
        """
        raise NotImplementedError

    def rate(self) -> tf.Tensor:
        """Returns the learning rate of the next step.

        Raises:
            NotImplementedError: The subclass for this Keras does not define it.
        """
        raise NotImplementedError

    def _trained(self, proxies: Sequence[TableProxy], variables: Sequence[Any]) -> Trained:
        def apply_dense(gradients: list[tf.Tensor]) -> None:
            if variables:
                self.apply_dense(gradients, variables)
            else:
                self.iterations.assign_add(1)

        return Trained(
            proxies,
            variables,
            rate=self.rate,
            rates=lambda: self.sparse_update.learning_rates(
                proxies, self.rate, tf.convert_to_tensor(self.iterations)
            ),
            apply_dense=apply_dense,
            count=lambda: self.iterations.assign_add(1),
        )


class OfKeras3(Distributed):
    """Mixin for Keras 3, where `fit`, `apply_gradients` and custom loops call `apply`."""

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Applies the gradients of all ranks, as one step.

        Every rank must call it, or `join`. Raises as `step` does.

        Args:
            grads: Gradients of this rank; `None` for a variable without one.
            trainable_variables: Variable of each gradient, tables included. Default: all of
                `build`.
        """
        built = self.sparse_update.variables
        self.step(grads, built if trainable_variables is None else trainable_variables)

    @override
    def apply_dense(self, gradients: list[tf.Tensor], variables: Sequence[Any]) -> None:
        super().apply(gradients, list(variables))

    @override
    def rate(self) -> tf.Tensor:
        return self.learning_rate


class OfKeras2(Distributed):
    """Mixin for Keras 2, where `fit` and custom loops call `apply_gradients`."""

    # AutoGraph would inspect every line, although nothing needs a conversion.
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], name: str | None = None, **options: Any
    ) -> Any:
        """Applies the gradients of all ranks, as one step. Returns the number of steps.

        Every rank must call it, or `join`. Raises as `step` does.

        Args:
            grads_and_vars: Pairs of a gradient of this rank and its variable.
            name: Ignored.
            **options: Ignored.
        """
        pairs = list(grads_and_vars)
        self.step([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    @override
    def apply_dense(self, gradients: list[tf.Tensor], variables: Sequence[Any]) -> None:
        super().apply_gradients(zip(gradients, variables, strict=True))

    @override
    def rate(self) -> tf.Tensor:
        # With a schedule, `learning_rate` is the rate of the last step.
        schedule = schedule_of(self)
        return self.learning_rate if schedule is None else schedule(self.iterations)
