"""Lookups that gather rows from variables on a device.

The host finds the row of each key in the variable of its table, and the rows that have changed
since they were last written to the variable. The device writes the changed rows and then gathers.
Lookups run one after the other, even from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid.ops._library import OPS
from tfhybrid.ops.lookup import FeatureKeys, TableRef, gradients_of_tables, number_keys

tf.no_gradient("TfhybridPlaceRows")

_Read = Callable[[list[tf.Tensor]], list[tf.Tensor]]


class DeviceRows:
    """Rows of some tables in one variable per table, on the device that is current at creation.

    The variables are not weights: they are copies of rows, and can be filled again at any time.
    Thread-safe.

    Args:
        dims: Dim of each table, by its name. The tables have `fast_tier="device"`.
    """

    def __init__(self, dims: Mapping[str, int]) -> None:
        with tf.init_scope():
            self._rows = {
                name: tf.Variable(
                    tf.zeros([0, dim]), trainable=False, shape=tf.TensorShape([None, dim])
                )
                for name, dim in dims.items()
            }
            with tf.device("CPU:0"):
                # The number of the last lookup whose rows were written.
                self._held = tf.Variable(0, dtype=tf.int64, trainable=False)
                self._alone = tf.CriticalSection()
        self._eager: dict[tuple[Any, ...], _Read] = {}

    def __contains__(self, table: str) -> bool:
        """Returns whether there is a variable for a table."""
        return table in self._rows

    @property
    def devices(self) -> dict[str, str]:
        """The device of each table's variable."""
        return {name: rows.device for name, rows in self._rows.items()}

    def lookup(
        self,
        tables: Sequence[TableRef],
        features: Sequence[FeatureKeys],
        proxies: Sequence[tf.Tensor],
        *,
        outside: bool = False,
    ) -> list[tf.Tensor]:
        """Gathers the embeddings of features on the device, and combines those of bags there.

        Args:
            tables: Table of each feature; features may share one.
            features: Keys of each feature.
            proxies: Value of each feature's proxy variable, which gets the gradient.
            outside: Whether this is outside of training: a key without a row then reads what its
                table says (`Table.unseen`), otherwise its initial value. Default: no.

        Returns:
            One tensor per feature: float32 `keys.shape + [dim]`, or `[bags, dim]` with a combiner.

        Raises:
            tf.errors.OpError: When the op runs, a table is not open, or rows cannot be fetched.
        """
        keys = [tf.reshape(feature.keys, [-1]) for feature in features]
        embeddings = []
        rows = self._reader(tables, outside)(keys)
        for table, feature, of_keys in zip(tables, features, rows, strict=True):
            shape = tf.concat([tf.shape(feature.keys), [table.dim]], axis=0)
            embedding = tf.ensure_shape(
                tf.reshape(of_keys, shape), [*feature.keys.shape, table.dim]
            )
            embeddings.append(feature.combine(embedding))
        return _with_gradients(tables, features, proxies, embeddings)

    def _reader(self, tables: Sequence[TableRef], outside: bool) -> _Read:
        if not tf.executing_eagerly():
            return lambda keys: self._read(tables, keys, outside)
        # A graph that fails leaves the critical section; in eager code the exception would stay in.
        named = (outside, *((table.engine, table.name) for table in tables))
        if named not in self._eager:
            self._eager[named] = tf.function(
                lambda keys: self._read(tables, keys, outside),
                input_signature=[[tf.TensorSpec([None], tf.int64)] * len(tables)],
            )
        return lambda keys: _untaped(self._eager[named], keys)

    def _read(
        self, tables: Sequence[TableRef], keys: list[tf.Tensor], outside: bool
    ) -> list[tf.Tensor]:
        """Returns the row of each key, `[keys, dim]`. Runs in graphs only."""
        distinct = list({table.name: table for table in tables}.values())
        names = [table.name for table in distinct]

        def alone() -> list[tf.Tensor]:
            placed = OPS.tfhybrid_place_rows(
                proxies=[table.proxy for table in distinct],
                keys=keys,
                held=self._held.read_value(),
                engine=tables[0].engine,
                tables=names,
                dims=[table.dim for table in distinct],
                table_of=[names.index(table.name) for table in tables],
                outside=outside,
            )
            written = [
                self._write(name, *of_table)
                for name, *of_table in zip(
                    names, tf.unstack(placed.sizes), placed.changed, placed.rows, strict=True
                )
            ]
            gathered = [
                tf.gather(self._rows[table.name], slots)
                for table, slots in zip(tables, placed.slots, strict=True)
            ]
            with tf.control_dependencies(written):
                return [*gathered, self._held.assign(placed.number)]

        # A model that looks up twice has two sections that use the same variables.
        return self._alone.execute(alone, exclusive_resource_access=False)[:-1]

    def _write(self, name: str, size: tf.Tensor, slots: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
        variable = self._rows[name]

        def resize() -> tf.Tensor:
            variable.assign(tf.zeros([size, variable.shape[1]]))
            return tf.identity(size)

        with tf.control_dependencies([tf.cond(size > 0, resize, lambda: tf.identity(size))]):
            return tf.raw_ops.ResourceScatterUpdate(
                resource=variable.handle, indices=slots, updates=rows
            )


def _untaped(read: _Read, keys: list[tf.Tensor]) -> list[tf.Tensor]:
    """Calls `read` without recording it on a gradient tape."""
    with tf.init_scope():
        return read(keys)


def _with_gradients(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    proxies: Sequence[tf.Tensor],
    embeddings: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """Returns the embeddings unchanged. Their gradients go to the proxies."""

    @tf.custom_gradient
    def carry(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor | None]]]:
        def gradient(*gradients: tf.Tensor) -> list[tf.Tensor | None]:
            by_number = number_keys(tables, features)
            slices = gradients_of_tables(tables, features, by_number, gradients)
            return [*slices, *[None] * len(embeddings)]

        return [tf.identity(embedding) for embedding in inputs[len(proxies) :]], gradient

    return list(carry(*proxies, *embeddings))
