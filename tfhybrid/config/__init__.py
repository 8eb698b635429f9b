"""The settings of tables: policies, placement, storage, optimizers."""

from tfhybrid.config.table_config import TableConfig

__all__ = ["TableConfig"]
