"""Tables of layers that could not be built, for the next layer with the same settings.

A store cannot close a single table. Without this, a layer that is made again after an error would
find the name of its table taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tfhybrid.config import TableConfig
from tfhybrid.store import Table

# By engine and name. An engine belongs to one job of the process.
_abandoned: dict[tuple[int, str], tuple[TableConfig, Table]] = {}


def take_or_open(engine: int, name: str, config: TableConfig) -> Table:
    """Takes the table that a layer with equal settings has abandoned, or opens a new one.

    Every rank must call it.

    Args:
        engine: Number of the job's engine.
        name: Name of the table, unique within the job.
        config: Settings of the table.

    Raises:
        TfhybridError: The table cannot be opened; see `Table`.
    """
    config_then, table = _abandoned.get((engine, name), (None, None))
    if table is None or config_then != _of_table(config):
        return Table(name, config)
    del _abandoned[engine, name]
    return table


def abandon(tables: Mapping[str, Table], configs: Mapping[str, TableConfig]) -> None:
    """Leaves tables to the next layer with the same settings.

    Args:
        tables: Tables of a layer.
        configs: Settings of each table, by the same names.
    """
    engines = {table.engine for table in tables.values()}
    for engine, name in list(_abandoned):
        if engine not in engines:
            del _abandoned[engine, name]
    for key, table in tables.items():
        _abandoned[table.engine, table.name] = (_of_table(configs[key]), table)


def take_back(tables: Mapping[str, Table]) -> list[str]:
    """Takes tables back that were abandoned, unless another layer has taken one.

    Args:
        tables: Tables of a layer.

    Returns:
        Names of the tables that another layer has taken. If there is one, nothing was changed.
    """
    keys = [(table.engine, table.name) for table in tables.values()]
    if gone := [name for engine, name in keys if (engine, name) not in _abandoned]:
        return gone
    for key in keys:
        del _abandoned[key]
    return []


def _of_table(config: TableConfig) -> TableConfig:
    """Returns settings without those that belong to a feature."""
    return dataclasses.replace(config, combiner=None, max_length=None, keep="first")
