"""Ids counted in files, beside NumPy's."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from tfhybrid.cli.data.distinct_ids import DistinctIds
from tfhybrid.cli.main import app
from tfhybrid.store.table_memory import TableShape, bytes_of

SAMPLES = 5_000


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def days(tmp_path) -> dict[str, np.ndarray]:
    """Two files; the columns of both together."""
    rng = np.random.default_rng(1)
    columns = {
        "user": rng.zipf(1.3, 2 * SAMPLES) % 10**9,
        "item": rng.integers(0, 300, 2 * SAMPLES),
        "liked": rng.integers(200, 500, (2 * SAMPLES, 3)),
        "label": rng.integers(0, 2, 2 * SAMPLES),
    }
    for day in range(2):
        part = slice(day * SAMPLES, (day + 1) * SAMPLES)
        table = {name: list(column[part]) for name, column in columns.items()}
        path = tmp_path / f"day_{day}.parquet"
        pa.parquet.write_table(pa.table(table), path, row_group_size=999)
    return columns


def test_ids_are_counted_and_the_rows_to_expect_told(tmp_path, days) -> None:
    files = [tmp_path / "day_0.parquet", tmp_path / "day_1.parquet"]
    options = ("--features", "user,item,liked", "--dim", "8", "--optimizer", "sgd")
    found = json.loads(run("--data", *files, *options, "--json").stdout)
    again = json.loads(run("--data", tmp_path / "*.parquet", *options, "--json").stdout)
    assert found["tables"] == again["tables"]
    assert found["samples"] == 2 * SAMPLES
    for name in ("user", "item", "liked"):
        table, ids = found["tables"][name], len(np.unique(days[name]))
        assert table["ids"] == {"ids": ids, "least": ids, "most": ids, "exact": True}
        assert ids <= table["expected_rows"] <= 1.1 * ids
        assert table["bytes"] == bytes_of(TableShape(table["expected_rows"], 8, 0)).total
        assert table["keys_per_sample"] == (3 if name == "liked" else 1)
    assert found["shared_memory"] == sum(table["bytes"] for table in found["tables"].values())
    shown = run("--data", *files, *options).stdout
    assert "item: TableConfig(..., expected_rows=300)" in shown
    assert "files of each host" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_features_that_share_a_table_are_counted_together(tmp_path, days) -> None:
    options = ("--features", "user,item,liked", "--shared", "items=item,liked", "--json")
    found = json.loads(run("--data", tmp_path / "*.parquet", *options).stdout)["tables"]
    assert sorted(found) == ["items", "user"]
    assert found["items"]["ids"]["ids"] == len(np.union1d(days["item"], days["liked"]))
    assert found["items"]["keys_per_sample"] == 4


def test_text_is_counted_too(tmp_path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("clicked;user;tags\n1;a7;1|2\n0;b8;\n1;a7;2\n")
    options = ("--format", "csv", "--strings", "user", "--lists", "tags", "--delimiter", ";")
    found = json.loads(run("--data", path, *options, "--label", "clicked", "--json").stdout)
    assert {name: table["ids"]["ids"] for name, table in found["tables"].items()} == {
        **{"user": 2, "tags": 2}
    }


@pytest.mark.parametrize("ids", [1_000, 3_000, 30_000, 400_000])
def test_estimates_lie_within_their_bounds_in_bounded_memory(ids) -> None:
    counter = DistinctIds(exact_ids=2_000)
    rng = np.random.default_rng(3)
    keys = rng.integers(-(2**63), 2**63, ids)
    for part in np.array_split(np.concatenate([keys, keys[ids // 2 :]]), 20):
        counter.add(part)
    count = counter.count()
    assert count.exact == (ids <= 2_000)
    assert count.least <= ids <= count.most
    assert count.ids == pytest.approx(ids, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "plan needs either --rows or --data. Received: none"),
        (("--rows", "5", "--data", "x"), "Received: both"),
        (("--rows", "5", "x.csv"), "do not go with --rows. Received: FILES"),
        (("--rows", "5", "--label-kind", "class"), "not go with --rows. Received: --label-kind"),
        (("--data", "x", "--measure", "--zipf=1"), "go with --data. Received: --measure, --zipf"),
        (("--data", "nowhere/*.csv", "--features", "a"), "Expected files at 'nowhere/*.csv'"),
        (("--data", "x", "--format", "xml"), "--format must be one of csv"),
    ],
)
def test_what_cannot_be_counted_is_told(arguments, message) -> None:
    assert message in run(*arguments, status=1).output


def test_a_shared_table_of_no_feature_is_refused(tmp_path, days) -> None:
    options = ("--data", tmp_path / "*.parquet", "--features", "user")
    assert "Received: ['itm']" in run(*options, "--shared", "items=itm", status=1).output
    assert "TABLE=FEATURE" in run(*options, "--shared", "items", status=1).output


def test_lists_of_parquet_are_features(tmp_path, days) -> None:
    result = run("--data", tmp_path / "*.parquet", "--lists", "liked", status=1)
    assert "they tell the types of their columns: name these in --features" in result.stderr
    assert "Received: --lists" in result.stderr
