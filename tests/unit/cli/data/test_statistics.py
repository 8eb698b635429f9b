"""Statistics of numbers: exact counts, means and variances, and quantiles within their bound."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from tfhybrid.cli import app
from tfhybrid.cli.data.number_statistics import NumberStatistics

EXTREMES = [0.0, -0.0, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 16777217.0]


def run(*arguments, status=0):
    result = CliRunner().invoke(app, ["data", "statistics", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def drawn(count):
    generator = np.random.default_rng(11)
    return (generator.lognormal(2, 3, count) * generator.choice([-1, 1], count)).astype(np.float32)


def expected(values):
    """Returns mean and variance as fractions, rounded once."""
    exact = [Fraction(float(each)) for each in values]
    mean = sum(exact) / len(exact)
    return float(mean), float(sum(each * each for each in exact) / len(exact) - mean * mean)


def check_quantiles(result, values):
    """Checks 20 quantiles against the ranks that they claim."""
    ordered = np.sort(values)
    for part, quantile in enumerate(result["quantiles"], 1):
        below = np.searchsorted(ordered, quantile) / len(values)
        # Each one holds with a confidence of 99 %, and all hold with three times the error.
        assert abs(below - part / 20) < 3 * result["rank_error"]


@pytest.mark.parametrize("values", [drawn(3000), np.float32(EXTREMES), np.float32([7])])
def test_mean_and_variance_are_exact_in_any_order(values):
    statistics, reverse = NumberStatistics(), NumberStatistics()
    for part in np.array_split(values, 3):
        statistics.add(part)
    reverse.add(values[::-1])
    result = statistics.result(10)
    assert (result["mean"], result["variance"]) == expected(values)
    logs = np.log1p(np.maximum(values.astype(np.float64), 0)).astype(np.float32)
    assert (result["log_mean"], result["log_variance"]) == expected(logs)
    assert reverse.result(10) == result
    assert (result["min"], result["max"]) == (float(values.min()), float(values.max()))


def test_few_values_have_exact_quantiles():
    statistics = NumberStatistics()
    statistics.add(np.float32([5, 1, np.nan, 3, 2, 4]))
    result = statistics.result(5)
    assert (result["count"], result["missing"], result["rank_error"]) == (5, 1, 0)
    assert result["quantiles"] == [1, 2, 3, 4]


def test_many_values_have_quantiles_within_the_rank_error():
    values, statistics = drawn(100_000), NumberStatistics(exact_values=1000)
    for part in np.array_split(values, 7):
        statistics.add(part)
    result = statistics.result(20)
    assert 0 < result["rank_error"] < 0.001
    check_quantiles(result, values)
    assert (result["mean"], result["variance"]) == expected(values)


def test_parts_are_merged_to_the_bits_of_one_pass():
    values = np.concatenate([drawn(5000), np.float32([-0.0, np.nan, 0.0])])
    whole = NumberStatistics()
    whole.add(values)
    merged = NumberStatistics()
    for part in np.array_split(values, 3):
        statistics = NumberStatistics()
        statistics.add(part)
        merged.merge(pickle.loads(pickle.dumps(statistics)))
    assert json.dumps(merged.result(10)) == json.dumps(whole.result(10))
    assert merged.result(10)["missing"] == 1


def test_merged_sketches_have_the_same_rank_error():
    values, merged = drawn(100_000), NumberStatistics(exact_values=1000)
    # With a sketch, and without one.
    for part in np.split(values, [500, 1000, 20_000, 20_100]):
        statistics = NumberStatistics(exact_values=1000)
        statistics.add(part)
        merged.merge(pickle.loads(pickle.dumps(statistics)))
    whole = NumberStatistics(exact_values=1000)
    whole.add(values)
    result, expected_result = merged.result(20), whole.result(20)
    assert result["rank_error"] == expected_result["rank_error"]
    check_quantiles(result, values)
    assert result["mean"] == expected_result["mean"]


OPTIONS = ("--format", "csv", "--dense", "price,age")


def written(tmp_path):
    """Returns two files with three prices and four ages."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, rows in zip(paths, ("1,1,20\n0,,30\n", "0,2,40\n1,6,10\n"), strict=True):
        path.write_text(f"label,price,age\n{rows}")
    return paths


def test_files_are_read_in_one_pass(tmp_path):
    result = json.loads(run(*written(tmp_path), *OPTIONS, "--parts", 2, "--json"))
    assert (result["files"], result["samples"]) == (2, 4)
    mean, variance = expected([1, 2, 6])
    log_mean, log_variance = expected(np.log1p(np.float64([1, 2, 6])).astype(np.float32))
    price = {
        **{"log_mean": log_mean, "log_variance": log_variance},
        **{"count": 3, "missing": 1, "mean": mean, "variance": variance, "min": 1, "max": 6},
        **{"quantiles": [2], "rank_error": 0},
    }
    assert result["columns"]["price"] == price
    assert result["columns"]["age"]["quantiles"] == [20]


def test_a_table_is_shown(tmp_path):
    output = run(*written(tmp_path), *OPTIONS, "--missing-value", 3)
    assert "2 file(s), 4 samples" in output
    assert "quantiles of age (exact): 10, 10, 20, 20, 20, 30, 30, 40, 40" in output
    assert (
        json.loads(run(*written(tmp_path), *OPTIONS, "--missing-value", 3, "--json"))["columns"][
            "price"
        ]["mean"]
        == 3
    )


def test_lists_have_statistics_of_each_position(tmp_path):
    path = tmp_path / "day.parquet"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 6.0]), 2)
    table = pa.table({"label": [0, 1], "vector": vectors})
    pyarrow.parquet.write_table(table, path)
    result = json.loads(run(path, "--format", "parquet", "--dense", "vector", "--json"))
    assert [result["columns"][f"vector[{i}]"]["mean"] for i in (0, 1)] == [2, 4]


def test_a_column_without_a_number_has_counts(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("label,price\n1,\n")
    result = json.loads(run(path, "--format", "csv", "--dense", "price", "--json"))
    assert result["columns"] == {"price": {"count": 0, "missing": 1}}
    assert "price" in run(path, "--format", "csv", "--dense", "price")


def test_columns_of_numbers_must_be_named(tmp_path):
    output = run(*written(tmp_path), "--format", "csv", "--features", "age", status=1)
    assert "name them in --dense" in output
