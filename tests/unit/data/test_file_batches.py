from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfhybrid.data import Clicks, Csv, FileBatches, Format, Parquet, Position, Shard, Unit
from tfhybrid.errors import ConfigError, DataError

quick = settings(max_examples=60, deadline=None)


class Numbered(Format):
    """Files that hold nothing: a name `FIRST-ROWS-UNIT` says what is read of it."""

    def units(self, path):
        first, rows, size = map(int, path.name.split("-"))
        begins = range(0, rows, size) or [0]
        return [Unit(path, first + b, 0, b, min(size, rows - b)) for b in begins]

    def read_unit(self, unit):
        numbers = np.arange(unit.begin, unit.begin + unit.rows)
        return Clicks({"number": numbers}, (numbers % 2).astype(np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def files_of(folder, counts, unit):
    firsts = itertools.accumulate(counts, initial=0)
    paths = [
        folder / f"{first:04}-{rows}-{unit}" for first, rows in zip(firsts, counts, strict=False)
    ]
    for path in paths:
        path.touch()
    return paths


def rank_batches(files, size, batch_size, **options):
    return [
        FileBatches(Numbered(), files, batch_size, seed=5, shard=Shard(rank, size), **options)
        for rank in range(size)
    ]


def numbers_of(batches, *position, **options):
    return [batch.features["number"].tolist() for batch in batches.batches(*position, **options)]


@st.composite
def worlds(draw):
    """Samples of each file, samples of a unit, ranks, batch size, window."""
    counts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=6))
    size = draw(st.integers(1, 5))
    world = counts, draw(st.integers(1, 15)), size, draw(st.integers(1, 9))
    return (*world, draw(st.integers(1, 60))) if sum(counts) >= size else draw(worlds())


@given(worlds(), st.booleans(), st.integers(0, 2))
@quick
def test_ranks_together_take_every_sample_once_in_equal_steps(folder, world, shuffle, epoch):
    counts, unit, size, batch_size, window = world
    files = files_of(folder, counts, unit)
    ranks = rank_batches(files, size, batch_size, window=window, shuffle=shuffle)
    taken = [numbers_of(batches, epoch) for batches in ranks]

    assert {len(steps) for steps in taken} == {ranks[0].steps_per_epoch}
    every = sorted(number for steps in taken for batch in steps for number in batch)
    assert every == list(range(sum(counts)))
    for step in zip(*taken, strict=True):
        sizes = [len(batch) for batch in step]
        assert 1 <= min(sizes) <= max(sizes) <= min(min(sizes) + 1, batch_size + 1)


@given(worlds(), st.booleans())
@quick
def test_resuming_anywhere_equals_one_run(folder, world, shuffle):
    counts, unit, size, batch_size, window = world
    files = files_of(folder, counts, unit)
    batches = rank_batches(files, size, batch_size, window=window, shuffle=shuffle)[-1]
    whole = numbers_of(batches, epochs=2)

    for steps in range(len(whole)):
        position = Position(*json.loads(json.dumps(batches.position(steps))))
        assert numbers_of(batches, *position, epochs=2 - position.epoch) == whole[steps:]


@given(worlds())
@quick
def test_dropping_the_remainder_leaves_full_batches_only(folder, world):
    counts, unit, size, batch_size, window = world
    if sum(counts) < batch_size * size:
        return
    files = files_of(folder, counts, unit)
    for batches in rank_batches(files, size, batch_size, window=window, drop_remainder=True):
        steps = numbers_of(batches)
        assert len(steps) == batches.steps_per_epoch == sum(counts) // (batch_size * size)
        assert {len(batch) for batch in steps} == {batch_size}


@given(st.integers(40, 90), st.integers(1, 15))
@quick
def test_windows_hold_the_same_samples_on_any_number_of_ranks(folder, rows, unit):
    files = files_of(folder, [rows], unit)
    sets = []
    for size in (1, 2, 4):
        ranks = rank_batches(files, size, 8 // size, window=24)
        assert {batches.steps_per_window for batches in ranks} == {3}
        taken = [numbers_of(batches) for batches in ranks]
        windows = [
            {n for steps in taken for batch in steps[begin : begin + 3] for n in batch}
            for begin in range(0, rows // 8, 3)
        ]
        sets.append(windows[: rows // 24 - 1])
    assert sets[0] == sets[1] == sets[2]


def test_epochs_are_shuffled_differently_and_reproducibly(folder):
    files = files_of(folder, [50, 30], 10)
    (batches,) = rank_batches(files, 1, 8)
    first, second = numbers_of(batches, 0), numbers_of(batches, 1)
    assert first != second
    assert numbers_of(batches, 0) == first
    (other,) = [FileBatches(Numbered(), files, 8, seed=6, shard=Shard(0, 1))]
    assert numbers_of(other, 0) != first


def test_a_dataset_of_parquet_files_with_lists(tmp_path):
    for part in range(3):
        users = range(part * 10, part * 10 + 10)
        columns = {"label": [0.0] * 10, "user": users, "tags": [[u] * (u % 3) for u in users]}
        path = tmp_path / f"part-{part}.parquet"
        pa.parquet.write_table(pa.table(columns), path, row_group_size=4)
    batches = FileBatches(
        Parquet(["user", "tags"]), tmp_path / "*.parquet", 4, seed=1, shard=Shard(1, 2)
    )
    dataset = batches.dataset(1, 1, epochs=2)
    assert dataset.element_spec[0]["tags"] == tf.RaggedTensorSpec([None, None], tf.int64)
    elements = [
        (features["user"][:, 0].numpy().tolist(), features["tags"].to_list())
        for features, _ in dataset
    ]
    assert len(elements) == dataset.cardinality() == 2 * batches.steps_per_epoch - 1
    for users, tags in elements:
        assert tags == [[user] * (user % 3) for user in users]


def test_a_malformed_line_ends_the_dataset_with_its_message(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("label,user\n0,1\n0,2\n0,x\n")
    batches = FileBatches(Csv(["user"]), path, 1, seed=1, shard=Shard(0, 1))
    with pytest.raises(DataError, match=r"day\.csv, column 'user', line 4"):
        batches.dataset()


def test_reading_ends_when_nobody_asks_for_more(folder):
    files = files_of(folder, [40], 4)
    (batches,) = rank_batches(files, 1, 2, window=4)
    begun = batches.batches(epochs=None)
    next(begun)
    begun.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1. Received: 0"),
        ({"window": 0}, "window must be at least 1. Received: 0"),
        ({"seed": -1}, "seed must not be negative. Received: -1"),
    ],
)
def test_options_out_of_range_are_refused(folder, options, message):
    arguments = {"batch_size": 2, "seed": 1} | options
    with pytest.raises(ConfigError, match=message):
        FileBatches(Numbered(), files_of(folder, [4], 2), shard=Shard(0, 1), **arguments)


def test_no_files_and_no_samples_are_said_so(folder, tmp_path):
    with pytest.raises(DataError, match=r"Expected files at .*\*\.csv'. Received: none there"):
        FileBatches(Csv(["user"]), tmp_path / "*.csv", 2, seed=1, shard=Shard(0, 1))
    with pytest.raises(DataError, match="Received: 1 files without any"):
        FileBatches(Numbered(), files_of(folder, [0], 2), 2, seed=1, shard=Shard(0, 1))
    with pytest.raises(ConfigError, match=r"a batch for each of 3 ranks. Received: 2 samples"):
        FileBatches(Numbered(), files_of(folder, [2], 2), 2, seed=1, shard=Shard(0, 3))
