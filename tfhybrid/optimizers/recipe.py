"""Settings on which the result of training depends, besides the data; equal on all ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfhybrid.config import TableConfig
from tfhybrid.layers.table_proxy import TableProxy


def recipe_of(optimizer: Any) -> dict[str, Any]:
    """Returns the settings that must be equal on every rank: description -> value, ready for JSON.

    Names of dense variables are left out: Keras numbers them depending on what else was built.

    Args:
        optimizer: Distributed optimizer that is built.
    """
    tables = [v.table for v in optimizer.sparse_update.variables if isinstance(v, TableProxy)]
    dense = [v for v in optimizer.sparse_update.variables if not isinstance(v, TableProxy)]
    options = optimizer.get_config()
    del options["name"]  # Keras may number it
    settings: Mapping[str, Any] = {
        "tables, in their order": [table.name for table in tables],
        **{f"table '{table.name}'": described(table) for table in tables},
        "optimizer": type(optimizer).__name__,
        **{f"optimizer's {option}": value for option, value in options.items()},
        **optimizer.sparse_update.configuration(),
        "backward_passes_per_step": optimizer.distributed_step.micro_batch_count,
        "update": optimizer.distributed_step.update,
        "dense": optimizer.distributed_step.dense,
        "number of dense variables": len(dense),
        **{
            f"dense variable {number}": [list(variable.shape), tf.as_dtype(variable.dtype).name]
            for number, variable in enumerate(dense)
        },
    }
    return json.loads(json.dumps(settings, default=str))


def unseen_of(proxies: Sequence[TableProxy]) -> dict[str, str]:
    """Returns what keys without a row read outside of training, which must be equal on every rank.

    It is no part of the recipe: a job may resume from memory with another `TableConfig.unseen`.

    Args:
        proxies: Variables that stand for the tables.
    """
    tables = [proxy.table for proxy in proxies]
    return {f"TableConfig(unseen=) of table '{table.name}'": table.unseen for table in tables}


class Described(Protocol):
    """Table whose settings can be compared with those of other ranks; it need not be open."""

    dim: int
    config: TableConfig


def described(table: Described) -> list[Any]:
    """Returns the settings on which a table's rows depend, without its optimizer.

    Args:
        table: The table.
    """
    config = table.config
    return [table.dim, *config.initializer.native, config.policy, str(config.placement)]
