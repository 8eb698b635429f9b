"""One of two sharded tables that get the same keys: its statistics, and the same in plain NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import tfhybrid
from tests.support.core.sharded_tables import INITIALIZER, RATE, TABLES
from tests.support.reference import training
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import TableStatsStruct
from tfhybrid.core.update import Update, UpdateChoices

# Both tables get the same keys; the one that is looked at has this many numbers a row.
NAME, DIM = "user", TABLES["user"]


def stats_of(engine: Engine) -> TableStatsStruct:
    struct = TableStatsStruct()
    engine.call("table_stats_get", NAME.encode(), ctypes.byref(struct))
    return struct


def opened_updates(engines: Sequence[Engine]) -> list[Update]:
    return [engine.open_update("sgd", TABLES, UpdateChoices(reduction="sum")) for engine in engines]


def reference() -> training.Table:
    config = tfhybrid.TableConfig(DIM, initializer=INITIALIZER)
    return training.Table(NAME, config, training.Adagrad(RATE))
