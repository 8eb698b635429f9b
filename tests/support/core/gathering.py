"""Lookups of an engine's tables that gather on a device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tests.support.core.pass_trainers import TABLES
from tfhybrid.core.engine import Engine
from tfhybrid.ops.device_gather import lookup_on_device
from tfhybrid.ops.lookup import FeatureKeys, TableRef


class Gathering:
    """Tables of an engine, of which lookups gather on a device.

    Args:
        engine: Whose tables.
        tables: Name and dim of each.
    """

    def __init__(self, engine: Engine, tables: Mapping[str, int] = TABLES) -> None:
        with tf.device("CPU:0"):
            self._proxies = [tf.Variable(tf.zeros([0, dim])) for dim in tables.values()]
        self._tables = [
            TableRef(engine.number, name, dim, proxy.handle)
            for (name, dim), proxy in zip(tables.items(), self._proxies, strict=True)
        ]

    def __call__(self, *keys: np.ndarray, outside: bool = False) -> list[np.ndarray]:
        """Returns the rows of each table's keys, as outside of training or in it."""
        features = [FeatureKeys(tf.constant(of_table, tf.int64)) for of_table in keys]
        values = [proxy.read_value() for proxy in self._proxies]
        found = lookup_on_device(self._tables, features, values, training=not outside)
        return [rows.numpy() for rows in found]
