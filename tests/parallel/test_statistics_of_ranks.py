"""`tfhybrid data statistics` on all ranks: what one pass over all rows gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import tfhybrid
from tfhybrid import distributed
from tfhybrid.cli import app
from tfhybrid.cli.data.number_statistics import EXACT_VALUES, NumberStatistics

pytestmark = pytest.mark.world_size
PARTS = 10


@pytest.fixture(autouse=True)
def _job() -> Iterator[None]:
    tfhybrid.init()
    yield
    tfhybrid.shutdown()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "statistics", *map(str, arguments)])


def statistics(*arguments: object) -> dict:
    """Returns what rank 0 shows, on all ranks; the others show nothing."""
    result = run(*arguments, "--parts", PARTS, "--json")
    assert result.exit_code == 0, result.output
    assert (result.stdout == "") == (tfhybrid.rank() > 0)
    return json.loads(distributed.broadcast_object(result.stdout))


def written(directory: Path, columns: dict[str, np.ndarray]) -> Path:
    """Writes columns into a file of several row groups, on rank 0."""
    path = directory / "day.parquet"
    if tfhybrid.rank() == 0:
        table = pa.table({"label": np.zeros(len(columns["price"]), np.int64), **columns})
        pa.parquet.write_table(table, path, row_group_size=-(-len(table) // 7))
    distributed.barrier()
    return path


def test_they_have_the_bits_of_one_pass(directory: Path) -> None:
    random = np.random.default_rng(1)
    columns = {name: random.lognormal(2, 3, 5000).astype(np.float32) for name in ("price", "age")}
    columns["price"][::9] = np.nan
    path = written(directory, columns)
    result = statistics(path, "--format", "parquet", "--dense", "price,age")
    assert result["samples"] == 5000
    for name, values in columns.items():
        whole = NumberStatistics()
        whole.add(values)
        assert json.dumps(result["columns"][name]) == json.dumps(whole.result(PARTS))


def test_many_values_have_quantiles_within_the_rank_error(directory: Path) -> None:
    """No rank has too many values for exact quantiles, all together have."""
    values = np.random.default_rng(2).normal(size=EXACT_VALUES + 1000).astype(np.float32)
    path = written(directory, {"price": values})
    result = statistics(path, "--format", "parquet", "--dense", "price")["columns"]["price"]
    assert 0 < result["rank_error"] < 0.001
    below = np.searchsorted(np.sort(values), np.float32(result["quantiles"])) / len(values)
    claimed = np.arange(1, PARTS) / PARTS
    assert (np.abs(below - claimed) < 3 * result["rank_error"]).all()
    whole = NumberStatistics()
    whole.add(values)
    expected = whole.result(PARTS)
    for name in ("count", "mean", "variance", "log_mean", "log_variance", "min", "max"):
        assert result[name] == expected[name]


def test_ranks_without_rows_take_part(directory: Path) -> None:
    path = directory / "day.csv"
    if tfhybrid.rank() == 0:
        path.write_text("label,price\n1,3\n0,\n")
    distributed.barrier()
    result = statistics(path, "--format", "csv", "--dense", "price")
    assert (result["samples"], result["columns"]["price"]["count"]) == (2, 1)


def test_a_bad_value_on_one_rank_stops_all(directory: Path) -> None:
    paths = [directory / "a.csv", directory / "b.csv"]
    if tfhybrid.rank() == 0:
        paths[0].write_text("label,price\n1,3\n")
        paths[1].write_text("label,price\n1,many\n")
    distributed.barrier()
    result = run(*paths, "--format", "csv", "--dense", "price")
    assert result.exit_code == 1
    assert "b.csv" in result.output
