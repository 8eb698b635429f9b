"""Settings of tables: row policies, placement, storage and optimizers."""

from tfhybrid.config.table_config import TableConfig

__all__ = ["TableConfig"]
