"""Bad rows that are skipped: steps and positions stay, and all rows are accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.data import Csv, FileBatches, Parquet, Shard
from tfhybrid.data.bad_rows import RowAccount
from tfhybrid.errors import ConfigError, DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of 130 rows with ids of their own, of which those divisible by 11 are bad."""
    first = 0
    for number, rows in enumerate((60, 1, 69)):
        users = [str(row) if row % 11 else "x" for row in range(first, first + rows)]
        lines = [f"{row % 2},{user}\n" for row, user in enumerate(users)]
        (tmp_path / f"{number}.csv").write_text("".join(["label,user\n", *lines]))
        first += rows
    return tmp_path


GOOD = [row for row in range(130) if row % 11]


def batches_of(folder: Path, rank: int = 0, size: int = 1, **options: Any) -> FileBatches:
    options = {"seed": 3, "window": 32, "bad_rows": "skip"} | options
    return FileBatches(Csv(["user"]), str(folder / "*.csv"), 4, shard=Shard(rank, size), **options)


def users_of(batches: FileBatches, **position: int) -> list[list[int]]:
    return [batch.features["user"].tolist() for batch in batches.batches(**position)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_rows_of_all_ranks_add_up(folder: Path, size: int) -> None:
    ranks = [batches_of(folder, rank, size) for rank in range(size)]
    steps = [users_of(rank) for rank in ranks]
    assert len({len(each) for each in steps}) == 1
    assert len(steps[0]) == ranks[0].steps_per_epoch
    assert sorted(user for each in steps for batch in each for user in batch) == GOOD
    accounts = [rank.account for rank in ranks]
    assert sum(account.trained for account in accounts) == len(GOOD)
    assert sum(account.bad for account in accounts) == 130 - len(GOOD)
    assert sum(account.rows for account in accounts) == 130


@pytest.mark.parametrize("size", [1, 2, 3])
def test_resuming_at_every_step_gives_the_same_batches_and_account(folder: Path, size: int) -> None:
    for rank in range(size):
        batches = batches_of(folder, rank, size)
        whole = users_of(batches, epoch=1)
        assert batches.account == RowAccount(
            1, batches.account.rows, 0, sum(map(len, whole)), batches.account.bad
        )
        for step in range(batches.steps_per_epoch):
            resumed = batches_of(folder, rank, size)
            assert users_of(resumed, epoch=1, step=step) == whole[step:]
            account = resumed.account
            assert account.before + account.trained + account.bad == account.rows
            assert account.rows == batches.account.rows


@pytest.mark.parametrize(("size", "then"), [(1, 2), (2, 3), (3, 1)])
def test_the_rows_of_an_epoch_that_other_ranks_began_add_up(
    folder: Path, size: int, then: int
) -> None:
    ranks = [batches_of(folder, rank, size) for rank in range(size)]
    used = [user for rank in ranks for batch in users_of(rank)[:7] for user in batch]
    ranks, begun = [batches_of(folder, rank, then) for rank in range(then)], ranks[0].position(7)
    positions = [rank.at(begun) for rank in ranks]
    for rank, at in zip(ranks, positions, strict=True):
        used += [user for batch in users_of(rank, epoch=0, step=at.step) for user in batch]
    assert sorted(used) == GOOD
    accounts = [rank.account for rank in ranks]
    assert sum(account.rows for account in accounts) == 130
    assert sum(account.before for account in accounts) == 7 * 4 * size
    for account in accounts:
        assert account.before + account.trained + account.bad == account.rows


def test_a_skipped_row_moves_no_other_row(folder: Path) -> None:
    skipped = users_of(batches_of(folder))
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text().replace("x", "-5"))
    whole = users_of(batches_of(folder))
    assert skipped == [[user for user in batch if user != -5] for batch in whole]


def test_each_bad_row_is_written_once(folder: Path) -> None:
    path = folder / "bad.jsonl"
    for rank in range(2):
        users_of(batches_of(folder, rank, 2, bad_rows_file=path))
    for _ in batches_of(folder, bad_rows_file=folder / "one.jsonl").batches(epochs=3):
        pass
    assert sorted((folder / "one.jsonl").open()) == sorted(path.open())
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 130 - len(GOOD)
    firsts = {"0.csv": 0, "1.csv": 60, "2.csv": 61}
    numbers = {firsts[Path(row["path"]).name] + row["row"] for row in rows}
    assert numbers == set(range(130)) - set(GOOD)
    assert {row["column"] for row in rows} == {"user"}
    assert all(row["reason"].endswith("Received: 'x'.") for row in rows)


def test_more_bad_rows_than_the_maximum_are_an_error(folder: Path) -> None:
    bad = 130 - len(GOOD)
    users_of(batches_of(folder, max_bad_rows=bad))
    with pytest.raises(DataError, match=rf"at most {bad - 1} bad rows.*Received: {bad}"):
        users_of(batches_of(folder, max_bad_rows=bad - 1))


def test_bad_rows_are_errors_by_default(folder: Path) -> None:
    with pytest.raises(DataError, match=r"\d\.csv, column 'user', line \d+: .*Received: 'x'"):
        users_of(batches_of(folder, bad_rows="raise"))


@pytest.mark.parametrize(
    "options",
    [
        {"bad_rows": "drop"},
        {"drop_remainder": True},
        {"bad_rows": "raise", "max_bad_rows": 1},
        {"bad_rows": "raise", "bad_rows_file": "bad"},
        {"max_bad_rows": -1},
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    folder: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        batches_of(folder, **options)


def test_a_file_that_cannot_be_read_on_is_an_error_in_any_case(folder: Path) -> None:
    path = folder / "1.csv"
    path.write_text('label,user\n0,"5\n1,6\n')
    with pytest.raises(DataError, match=r"1\.csv.*expected 2 samples"):
        users_of(batches_of(folder))


def test_batches_without_a_good_row_are_empty_and_a_model_trains_on_them(folder: Path) -> None:
    for path in folder.glob("[12].csv"):
        path.write_text("label,user\n" + "0,x\n" * 20)
    batches = batches_of(folder, shuffle=False)
    sizes = [len(batch) for batch in batches.batches()]
    assert sizes[-10:] == [0] * 10
    assert len(sizes) == batches.steps_per_epoch

    tfhybrid.init()
    user = keras.Input((1,), dtype="int64", name="user")
    layer = tfhybrid.layers.EmbeddingCollection({"user": tfhybrid.TableConfig(4)}, prefix="bad-")
    flat = keras.layers.Flatten()(layer({"user": user})["user"])
    model = keras.Model({"user": user}, keras.layers.Dense(1)(flat))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    model.fit(batches.dataset(), verbose=0)
    assert all(np.isfinite(weight).all() for weight in model.layers[-1].get_weights())
    tfhybrid.shutdown()


def test_a_dataset_can_be_made_although_the_first_row_is_bad(folder: Path) -> None:
    elements = list(batches_of(folder, shuffle=False).dataset())
    assert elements[0][0]["user"].numpy()[:, 0].tolist() == [1, 2, 3]
    assert isinstance(elements[0][1], tf.Tensor)


def test_parquet_rows_are_skipped_by_column(tmp_path: Path) -> None:
    rows = {"label": [0, 1, 2, 1], "user": [1.0, 2.5, 3.0, 4.0], "price": [0.5, 1.0, 1.0, 1e39]}
    pa.parquet.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=3)
    format_ = Parquet(["user"], dense=["price"])
    batches = FileBatches(
        format_,
        tmp_path / "a.parquet",
        4,
        seed=1,
        shard=Shard(0, 1),
        bad_rows="skip",
        bad_rows_file=tmp_path / "bad",
    )
    assert users_of(batches) == [[1]]
    told = [json.loads(line) for line in (tmp_path / "bad").read_text().splitlines()]
    assert {(row["row"], row["column"]) for row in told} == {
        (1, "user"),
        (2, "label"),
        (3, "price"),
    }
