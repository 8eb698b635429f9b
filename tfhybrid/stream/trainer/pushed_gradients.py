"""Pushed gradients, for trainers whose optimizers run in the sync unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from typing_extensions import override

from tfhybrid._keras import path_of
from tfhybrid.core import native
from tfhybrid.errors import DataError, UnsupportedError
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.ops.update_ops import Contribution
from tfhybrid.optimizers.dense_states import dense_states
from tfhybrid.optimizers.distributed_step import Trained
from tfhybrid.optimizers.twin import twin
from tfhybrid.store import Table
from tfhybrid.stream.trainer.pushing import OtherKeys, Push, Pushed, table_spec
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec, TableSpec


class PushedGradients(Push):
    """Gradients of rows and of dense weights, and the learning rates.

    Takes the optimizer's gradients (as its `GradientSink`) into variables, from which `collect`
    reads them after the step. From construction to `close` the optimizer counts steps, but changes
    no weight.

    Args:
        model: Keras model, compiled with a `DistributedOptimizer`.
        tables: Tables of the model, by name.
        statistics: Dense weights of the model without gradients; their deltas are sent.

    Raises:
        UnsupportedError: The optimizer does something that the sync unit cannot do.
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
        self._read: Mapping[str, np.ndarray] = {}
        self._other_keys = OtherKeys("their gradients are of initial rows, not of the sync unit's")
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

    @override
    def spec(self) -> ModelSpec:
        dense = twin(self._optimizer)
        return ModelSpec(
            {name: _table_spec(table) for name, table in sorted(self._tables.items())},
            [tuple(each.shape) for each in self._weights],
            seed=next((table.seed for table in self._tables.values()), 0),
            dense_optimizer=_settings(dense.native()),
            dense_slots=dense.slots,
            statistics=[tuple(each.shape) for each in self._statistics],
        )

    @override
    def states(self) -> np.ndarray | None:
        return self.spec().rows_of_states(
            [[np.asarray(each) for each in slot] for slot in dense_states(self._optimizer)]
        )

    @override
    def begin(
        self,
        keys: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray],
        version: int,
    ) -> None:
        self._read, self._before = keys, dense[len(self._weights) :]
        # A learning rate's schedule follows the number of updates of all trainers.
        self._optimizer.iterations.assign(version)

    def take(
        self, trained: Trained, contribution: Contribution, dense: Sequence[tf.Tensor]
    ) -> None:
        """Stores the gradients of a step; called by the optimizer while the step is traced.

        Args:
            trained: Variables and table proxies that the step trains, and their learning rates.
            contribution: Gradients of the rows, and whether the step fails or is skipped.
            dense: Gradients of `trained.variables`.

        Raises:
            UnsupportedError: A dense weight has no gradient.
        """
        with_gradient = {id(variable) for variable in trained.variables}
        missing = [path_of(each) for each in self._weights if id(each) not in with_gradient]
        if missing:
            raise UnsupportedError(
                "push='gradients' needs a gradient of each dense weight, because the sync unit's "
                f"optimizer trains all of them. Received: no gradient of {missing}"
            )
        indices = {id(variable): index for index, variable in enumerate(self._weights)}
        for variable, gradient in zip(trained.variables, dense, strict=True):
            self._dense[indices[id(variable)]].assign(tf.cast(gradient, tf.float32))
        gradients = {name: (tf.zeros([0], tf.int64), None) for name in self._tables}
        rates = trained.rates() if trained.proxies else tf.zeros([0])
        for number, (proxy, slices) in enumerate(
            zip(trained.proxies, contribution.gradients, strict=True)
        ):
            name = proxy.table.name
            gradients[name] = tf.cast(slices.indices, tf.int64), tf.cast(slices.values, tf.float32)
            self._rates[name].assign(rates[number])
        for name, (keys, values) in gradients.items():
            dim = self._tables[name].dim
            self._keys[name].assign(tf.reshape(keys, [-1]))
            self._values[name].assign(tf.zeros([0, dim]) if values is None else values)
        self._rates[DENSE_TABLE].assign(tf.cast(self._optimizer.rate(), tf.float32))
        self._failure.assign(contribution.failure)
        self._skip.assign(contribution.skip)

    @override
    def collect(self) -> Pushed:
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
            others = np.setdiff1d(keys[name], self._read[name], assume_unique=True)
            self._other_keys.warn(name, len(others))
        dense = [each.numpy() for each in self._dense]
        changes = [
            np.asarray(now, np.float32) - before
            for now, before in zip(self._statistics, self._before, strict=True)
        ]
        return Pushed(keys, values, [*dense, *changes], rates)

    @override
    def close(self) -> None:
        self._optimizer.distributed_step.send_to(None)
        self._model.make_train_function(force=True)


def _growing(dtype: tf.DType, inner: list[int]) -> tf.Variable:
    return tf.Variable(
        tf.zeros([0, *inner], dtype), shape=tf.TensorShape([None, *inner]), trainable=False
    )


def _summed(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct keys and the sum of each key's gradients."""
    distinct, indices = np.unique(keys, return_inverse=True)
    sums = np.zeros((len(distinct), values.shape[1]), np.float32)
    np.add.at(sums, indices, values)  # one by one, in the order of the batch, as the core does
    return distinct, sums


def _settings(optimizer: Sequence[float]) -> dict[str, float]:
    """Returns an optimizer's settings by name, without those that are zero."""
    settings = native.optimizer_settings(optimizer)
    whole = {name: int(settings[name]) for name in ("kind", "flags")}
    nonzero = {name: value for name, value in (settings | whole).items() if value}
    return {"kind": whole["kind"], **nonzero}


def _table_spec(table: Table) -> TableSpec:
    spec = table_spec(table)
    if not table.optimizer:  # a frozen table has no gradients
        return spec
    slots, slot_dim = table.state_shape
    return dataclasses.replace(
        spec, optimizer=_settings(table.optimizer), slots=slots, slot_dim=slot_dim
    )


def _check(optimizer: Any) -> None:
    step, update = optimizer.distributed_step, optimizer.sparse_update
    tables = [each.table for each in update.variables if isinstance(each, TableProxy)]
    decays = [optimizer.weight_decay, *(_settings(t.optimizer).get("weight_decay") for t in tables)]
    refused = {
        "clipping": update.clipping.kind != "none",
        "backward_passes_per_step": step.micro_batch_count > 1,
        "update='pass'": step.update == "pass",
        "weight decay": any(decays),
    }
    received = [name for name, is_set in refused.items() if is_set]
    if received:
        raise UnsupportedError(
            "push='gradients' needs an optimizer without clipping, weight decay, "
            "backward_passes_per_step and update='pass', because the sync unit does none of these; "
            "use push='deltas' instead. "
            f"Received: {', '.join(received)}"
        )
