"""What a trainer sends that leaves the optimizers to the sync unit: the gradients of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid._keras import path_of
from tfhybrid.core import native
from tfhybrid.errors import DataError, UnsupportedError
from tfhybrid.layers import TableProxy
from tfhybrid.ops.update_ops import Contribution
from tfhybrid.optimizers.dense_states import dense_states
from tfhybrid.optimizers.distributed_step import Trained
from tfhybrid.optimizers.twin import twin
from tfhybrid.store import Table
from tfhybrid.stream.trainer.pushing import Pushed
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec, TableSpec


class PushedGradients:
    """Gradients of rows and of dense weights, and learning rates; see `Push`.

    It takes the optimizer's gradients (`GradientSink`) into variables, from which `collect` reads
    them once the step is over. The optimizer counts steps, but changes no weight.

    Args:
        model: Compiled with a `DistributedOptimizer`.
        tables: Of the model, by name.
        statistics: Its dense weights without gradients: their deltas are sent.

    Raises:
        UnsupportedError: The optimizer does something that the sync unit does not.
    """

    def __init__(
        self, model: keras.Model, tables: Mapping[str, Table], statistics: Sequence[Any]
    ) -> None:
        self._model = model
        self._optimizer: Any = model.optimizer
        self._optimizer.build(model.trainable_variables)
        self._tables = tables
        self._statistics = statistics
        self._before: Sequence[np.ndarray] = ()
        _check(self._optimizer)
        variables = self._optimizer.sparse_update.variables
        self._weights = [each for each in variables if not isinstance(each, TableProxy)]
        self._dense = [tf.Variable(tf.zeros(each.shape), trainable=False) for each in self._weights]
        self._keys = {name: _growing(tf.int64, []) for name in tables}
        self._values = {name: _growing(tf.float32, [table.dim]) for name, table in tables.items()}
        self._rates = {
            name: tf.Variable(0.0, trainable=False) for name in (*sorted(tables), DENSE_TABLE)
        }
        self._failure = tf.Variable("", trainable=False)
        self._skip = tf.Variable(False, trainable=False)
        self._optimizer.distributed_step.send_to(self)
        model.make_train_function(force=True)

    def spec(self) -> ModelSpec:
        """Returns what the model consists of, its optimizers too."""
        dense = twin(self._optimizer)
        return ModelSpec(
            {name: _table_spec(table) for name, table in sorted(self._tables.items())},
            [tuple(each.shape) for each in self._weights],
            seed=next((table.seed for table in self._tables.values()), 0),
            dense_optimizer=_settings(dense.native()),
            dense_slots=dense.slots,
            statistics=[tuple(each.shape) for each in self._statistics],
        )

    def states(self) -> np.ndarray | None:
        """Returns the optimizer's state of the dense weights, with which the sync unit goes on."""
        return self.spec().rows_of_states(
            [[np.asarray(each) for each in slot] for slot in dense_states(self._optimizer)]
        )

    def begin(
        self,
        keys: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray],
        version: int,
    ) -> None:
        """Notes the statistics; learning rates follow the number of updates of all trainers."""
        self._before = dense[len(self._weights) :]
        self._optimizer.iterations.assign(version)

    def take(
        self, trained: Trained, contribution: Contribution, dense: Sequence[tf.Tensor]
    ) -> None:
        """Takes the gradients of a step, in its graph."""
        given = {id(variable) for variable in trained.variables}
        without = [path_of(each) for each in self._weights if id(each) not in given]
        if without:
            raise UnsupportedError(
                "push='gradients' wants a gradient of each dense weight: the sync unit's optimizer "
                f"trains all of them. Received: none of {without}"
            )
        places = {id(variable): place for place, variable in enumerate(self._weights)}
        for variable, gradient in zip(trained.variables, dense, strict=True):
            self._dense[places[id(variable)]].assign(tf.cast(gradient, tf.float32))
        found = {name: (tf.zeros([0], tf.int64), None) for name in self._tables}
        rates = trained.rates() if trained.proxies else tf.zeros([0])
        for number, (proxy, slices) in enumerate(
            zip(trained.proxies, contribution.gradients, strict=True)
        ):
            name = proxy.table.name
            found[name] = tf.cast(slices.indices, tf.int64), tf.cast(slices.values, tf.float32)
            self._rates[name].assign(rates[number])
        for name, (keys, values) in found.items():
            dim = self._tables[name].dim
            self._keys[name].assign(tf.reshape(keys, [-1]))
            self._values[name].assign(tf.zeros([0, dim]) if values is None else values)
        self._rates[DENSE_TABLE].assign(tf.cast(self._optimizer.rate(), tf.float32))
        self._failure.assign(contribution.failure)
        self._skip.assign(contribution.skip)

    def collect(self) -> Pushed:
        """Returns the gradients of the step, each key's summed up in the order of the batch.

        Raises:
            DataError: A gradient is not finite, and the optimizer does not skip such steps.
        """
        failure = self._failure.numpy().decode()
        if failure:
            raise DataError(failure)
        rates = {name: float(rate.numpy()) for name, rate in self._rates.items()}
        if self._skip.numpy():
            none = {name: np.zeros(0, np.int64) for name in self._tables}
            empty = {
                name: np.zeros((0, table.dim), np.float32) for name, table in self._tables.items()
            }
            return Pushed(none, empty, None, rates)
        keys, values = {}, {}
        for name in self._tables:
            keys[name], values[name] = _summed(self._keys[name].numpy(), self._values[name].numpy())
        dense = [each.numpy() for each in self._dense]
        changes = [
            np.asarray(now, np.float32) - before
            for now, before in zip(self._statistics, self._before, strict=True)
        ]
        return Pushed(keys, values, [*dense, *changes], rates)

    def close(self) -> None:
        """Lets the model train its own weights again."""
        self._optimizer.distributed_step.send_to(None)
        self._model.make_train_function(force=True)


def _growing(dtype: tf.DType, inner: list[int]) -> tf.Variable:
    return tf.Variable(
        tf.zeros([0, *inner], dtype), shape=tf.TensorShape([None, *inner]), trainable=False
    )


def _summed(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, places = np.unique(keys, return_inverse=True)
    sums = np.zeros((len(distinct), values.shape[1]), np.float32)
    np.add.at(sums, places, values)  # one by one and in order, as the engine does
    return distinct, sums


def _settings(optimizer: Sequence[float]) -> dict[str, float]:
    """Returns what an optimizer's numbers are called, but for those that are zero."""
    settings = native.optimizer_settings(optimizer)
    whole = {name: int(settings[name]) for name in ("kind", "flags")}
    found = {name: value for name, value in (settings | whole).items() if value}
    return {"kind": whole["kind"], **found}


def _table_spec(table: Table) -> TableSpec:
    if not table.optimizer:  # frozen: no gradient ever comes
        return TableSpec(table.dim, table.config.initializer.native)
    slots, slot_dim = table.state_shape
    return TableSpec(
        table.dim, table.config.initializer.native, _settings(table.optimizer), slots, slot_dim
    )


def _check(optimizer: Any) -> None:
    step, update = optimizer.distributed_step, optimizer.sparse_update
    tables = [each.table for each in update.variables if isinstance(each, TableProxy)]
    decays = [optimizer.weight_decay, *(_settings(t.optimizer).get("weight_decay") for t in tables)]
    refused = {
        "clipping": update.clipping.kind != "none",
        "backward_passes_per_step": step.passes > 1,
        "update='pass'": step.update == "pass",
        "weight decay": any(decays),
    }
    found = [name for name, is_set in refused.items() if is_set]
    if found:
        raise UnsupportedError(
            "push='gradients' takes optimizers without clipping, weight decay, "
            "backward_passes_per_step and update='pass', which the sync unit does not do; "
            "push='deltas' takes all. "
            f"Received: {', '.join(found)}"
        )
