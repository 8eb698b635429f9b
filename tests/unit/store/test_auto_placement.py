"""`placement="auto"`, by the memory that hosts have."""

from __future__ import annotations

import logging

import pytest

import tfhybrid
from tfhybrid.config.placement import REPLICATED, Sharded
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.store.auto_placement import choose
from tfhybrid.store.table_memory import TableShape, bytes_of

SHAPE = TableShape(rows=1_000_000, dim=16, state_floats=16)


def test_a_table_is_on_every_host_as_long_as_it_fits() -> None:
    whole = bytes_of(SHAPE).peak
    assert choose(SHAPE, 4, whole).placement == REPLICATED
    sharded = choose(SHAPE, 4, whole - 1)
    assert sharded.placement == Sharded()
    assert sharded.bytes == bytes_of(TableShape(250_000, 16, 16)).peak < whole / 3
    assert choose(SHAPE, 1, 0).placement == REPLICATED  # there is nowhere else


def test_of_a_table_in_files_cache_and_index_count() -> None:
    shape = TableShape(rows=1_000_000, dim=16, state_floats=16, cache_bytes=4 * 10**7)
    needed = bytes_of(shape).peak
    assert shape.cache_bytes + 17 * shape.rows < needed < bytes_of(SHAPE).peak
    assert choose(shape, 2, needed).placement == REPLICATED
    assert choose(shape, 2, needed - 1).placement == Sharded()


def test_it_wants_the_rows_to_expect() -> None:
    with pytest.raises(ConfigError, match=r"needs expected_rows\. Received: expected_rows=None"):
        tfhybrid.TableConfig(4, placement="auto")
    with pytest.raises(ConfigError, match=r"or 'auto'\. Received: placement='somewhere'"):
        tfhybrid.TableConfig(4, placement="somewhere", expected_rows=7)


@pytest.mark.usefixtures("job")
def test_what_was_chosen_is_logged_and_each_table_takes_its_part(caplog) -> None:
    config = tfhybrid.TableConfig(4, placement="auto", expected_rows=1000, optimizer="sgd")
    with caplog.at_level(logging.INFO, "tfhybrid.store"):
        tables = [tfhybrid.store.Table(name, config) for name in ("a", "b")]
    assert [table.config.placement for table in tables] == [REPLICATED] * 2
    assert current_job().room.planned == 2 * bytes_of(TableShape(1000, 4, 0)).peak
    assert current_job().room.bytes > 0
    assert "Table 'b': placement='auto' chose Replicated()." in caplog.text
