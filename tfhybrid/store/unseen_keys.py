"""Embeddings of keys without a row outside of training, in a table that takes over saved rows."""

from __future__ import annotations

import logging

from tfhybrid import distributed
from tfhybrid.store.table import Table

_log = logging.getLogger("tfhybrid.store")


def adopt(table: Table, unseen: str, source: object) -> None:
    """Lets keys without a row read what they read where the rows are from; logs a change.

    A value of `TableConfig.unseen` takes precedence. Every rank must call it.

    Args:
        table: Table that takes over the rows.
        unseen: `"zeros"` or `"initial"`.
        source: Origin of the rows, for the log.
    """
    if table.config.unseen is not None or unseen == table.unseen:
        return
    if distributed.rank() == 0:
        _log.info(
            "Table '%s': outside of training, keys without a row read %s, as in %s. "
            "TableConfig(unseen=...) changes that",
            table.name,
            "zeros" if unseen == "zeros" else "their initial values",
            source,
        )
    table.set_unseen(unseen)
