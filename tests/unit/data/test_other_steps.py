"""A position within an epoch is gone on from with another batch size, window or number of ranks."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfhybrid.data import (
    Batches,
    Clicks,
    Column,
    FileBatches,
    Format,
    Position,
    Shard,
    Unit,
    string_keys,
)
from tfhybrid.data.position import cursor_of, position_of, told
from tfhybrid.data.samples.origin import Origin
from tfhybrid.errors import ConfigError, DataError

ROOT = Path(__file__).resolve().parents[3]

quick = settings(max_examples=80, deadline=None)


class Counting(Format):
    """Files whose content is their number of samples."""

    def units(self, path):
        rows, size = int(path.read_text()), 7
        return [Unit(path, b, 0, b, min(size, rows - b)) for b in range(0, rows, size) or [0]]

    def read_unit(self, unit):
        numbers = 1000 * int(unit.path.name) + np.arange(unit.begin, unit.begin + unit.rows)
        return Clicks({"number": numbers}, (numbers % 2).astype(np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, rows in enumerate([40, 3, 25, 0, 60]):
        (folder / str(name)).write_text(str(rows))
    return folder


def in_memory(_folder, batch_size, size, _window, **options):
    table = Clicks({"number": np.arange(128)}, np.zeros(128, np.float32))
    given = {"seed": 5} | options
    return [Batches(table, batch_size, shard=Shard(r, size), **given) for r in range(size)]


def of_files(folder, batch_size, size, window, **options):
    files, given = folder / "[0-9]", {"seed": 5} | options
    return [
        FileBatches(Counting(), files, batch_size, window=window, shard=Shard(rank, size), **given)
        for rank in range(size)
    ]


def through_json(position: Position) -> Position:
    return position_of(json.loads(json.dumps(cursor_of(position))))


def numbers_of(batches) -> list[int]:
    return [int(n) for table in batches for n in table.features["number"]]


cuts = st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 90), st.integers(0, 12))


@pytest.mark.parametrize("make", [in_memory, of_files])
@quick
@given(runs=st.lists(cuts, min_size=1, max_size=4), shuffle=st.booleans(), epoch=st.integers(0, 2))
def test_each_sample_is_used_once(folder, make, runs, shuffle, epoch):
    position, used, left_out = Position(epoch, 0), [], 0
    for number, (batch_size, size, window, steps) in enumerate([*runs, (3, 2, 20, 10**6)]):
        ranks = make(folder, batch_size, size, window, shuffle=shuffle)
        position = {each.at(through_json(position)) for each in ranks}
        (position,) = position
        if position.epoch > epoch:
            left_out = 128 - len(used)
            assert left_out < size  # too few for a step
            break
        end = min(position.step + steps, ranks[0].steps_per_epoch)
        for each in ranks:
            of_rank = [*each.batches(*position)]
            assert len(of_rank) == ranks[0].steps_per_epoch - position.step, number
            used += numbers_of(of_rank[: end - position.step])
        data = ranks[0].at(position).data
        position = Position(epoch, end, data)
    everything = numbers_of(make(folder, 1, 1, 10**6)[0].batches(epoch))
    assert len(used) == len(set(used)) == 128 - left_out
    assert set(used) <= set(everything)


@pytest.mark.parametrize("make", [in_memory, of_files])
def test_in_the_order_of_the_table_the_next_sample_follows(folder, make):
    before, after = make(folder, 4, 2, 40, shuffle=False), make(folder, 10, 1, 40, shuffle=False)
    order = numbers_of(make(folder, 1, 1, 1, shuffle=False)[0].batches())
    position = before[0].position(5)  # a whole window of 40 samples
    (again,) = after
    rest = numbers_of(again.batches(*again.at(through_json(position))))
    assert rest == order[40:]


@pytest.mark.parametrize("make", [in_memory, of_files])
def test_the_same_steps_go_on_bit_for_bit_and_without_a_word(folder, make, caplog):
    batches = make(folder, 4, 2, 40)[1]
    whole = numbers_of(batches.batches(1))
    (again,) = [each for each in make(folder, 4, 2, 40) if each._shard.rank == 1]
    position = again.at(through_json(batches.position(batches.steps_per_epoch + 7)))
    assert position == (1, 7)
    assert numbers_of(again.batches(*position)) == whole[28:]
    assert not caplog.records


@pytest.mark.parametrize("make", [in_memory, of_files])
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"seed": 6}, "seed was 5, and is 6"),
        ({"shuffle": False}, "shuffle was True, and is False"),
    ],
)
def test_another_order_is_refused_within_an_epoch_alone(folder, make, options, wanted, caplog):
    before, (after,) = make(folder, 4, 1, 40)[0], make(folder, 4, 1, 40, **options)
    with pytest.raises(ConfigError, match=rf"epoch 1, step 3.*Received: {wanted}"):
        after.at(before.position(before.steps_per_epoch + 3))
    with caplog.at_level(logging.WARNING):
        assert after.at(before.position(before.steps_per_epoch)) == (1, 0)
    assert f"Epoch 1 begins with other data: {wanted}" in caplog.text


def test_files_that_changed_are_named(tmp_path):
    for name in ("1", "2"):
        (tmp_path / name).write_text("30")

    def batches() -> FileBatches:
        return FileBatches(Counting(), tmp_path / "*", 2, seed=1, shard=Shard(0, 1))

    position = through_json(batches().position(4))
    assert batches().at(position) == (0, 4)
    (tmp_path / "2").write_text("0030")
    with pytest.raises(ConfigError, match=r"2 had 2 bytes and the checksum \d+, and has 4 bytes"):
        batches().at(position)
    (tmp_path / "2").rename(tmp_path / "3")
    with pytest.raises(ConfigError, match="of 2 and 2 files, 2 is gone"):
        batches().at(position)


def test_files_may_have_moved_to_another_folder(tmp_path):
    for folder in ("old", "new"):
        (tmp_path / folder / "day").mkdir(parents=True)
        for name in ("1", "day/2"):
            (tmp_path / folder / name).write_text("30")
    old, new = (
        FileBatches(Counting(), sorted((tmp_path / f).rglob("[12]")), 2, seed=1, shard=Shard(0, 1))
        for f in ("old", "new")
    )
    assert new.at(through_json(old.position(4))) == (0, 4)


def test_another_table_is_noticed(folder):
    before = in_memory(folder, 4, 1, 0)[0]
    other = Clicks({"number": np.arange(128) + 1}, np.zeros(128, np.float32))
    with pytest.raises(ConfigError, match=r"the samples' checksum was \d+, and is \d+"):
        Batches(other, 4, seed=5, shard=Shard(0, 1)).at(before.position(3))


def test_fewer_ranks_of_a_window_and_the_unknown_are_warned_of(folder, caplog):
    before, after = of_files(folder, 4, 2, 40)[0], of_files(folder, 8, 1, 40)[0]
    with caplog.at_level(logging.WARNING):
        after.at(before.position(3))
        assert "ranks was 2, and is 1. On fewer ranks, each holds more of a window" in caplog.text
        caplog.clear()
        assert after.at(Position(2, 3)) == (2, 3)
        assert "epoch 2, step 3 does not say of which batch size" in caplog.text
    with pytest.raises(ConfigError, match=r"has 16 steps\. Received: .*epoch 2, step 17"):
        after.at(Position(2, 17))


def test_the_end_of_an_epoch_is_the_start_of_the_next(folder):
    before, after = in_memory(folder, 4, 2, 0)[0], in_memory(folder, 16, 1, 0)[0]
    position = Position(0, before.steps_per_epoch, before.position(0).data)
    assert after.at(position) == (1, 0)


def test_a_position_is_a_tuple_and_says_its_data_in_json_alone(folder):
    position = in_memory(folder, 4, 2, 0)[0].position(20)
    assert position == (1, 4) == Position(1, 4)
    assert repr(position) == "Position(epoch=1, step=4)"
    assert told(position) == told(cursor_of(position)) == "epoch 1, step 4"
    assert through_json(position).data == position.data
    assert cursor_of(position)["data"]["batch_size"] == 4
    assert position.advanced(2) == (1, 6)
    assert position.advanced(2).data is position.data


@pytest.mark.parametrize(
    "damage",
    [
        {"batch_size": 0},
        {"ranks": "2"},
        {"before": [[4, 2, 0, 10**6]]},
        {"before": [[4, 2]]},
        {"before": 3},
        {"files": [[1]]},
        {"samples": -1},
        {"surprise": 1},
    ],
)
def test_damaged_data_of_a_position_are_refused(folder, damage):
    batches = in_memory(folder, 4, 2, 0)[0]
    fields = batches.position(0).data | damage
    with pytest.raises(ConfigError, match="position's data must"):
        batches.at(Position(0, 3, fields))
    assert Origin.of(batches.position(0).data).steps_per_epoch == 16


ROWS = {
    "click": np.array([1, 0, 1]),
    "user": np.array([7, 8, 9]),
    "pair": np.array([[1, 2], [3, 4], [5, 6]]),
    "price": np.array([0.5, 1.5, 2.5]),
    "city": ["Rome", "Oslo", "Rome"],
    "tags": [[1, 2], [], [3]],
}


def test_batches_of_a_table_take_columns_by_their_types():
    pa = pytest.importorskip("pyarrow")
    tables = [
        ROWS,
        pa.table(
            {n: pa.array(v.tolist() if n == "pair" else v) for n, v in ROWS.items() if n != "pair"}
        ),
    ]
    for table in tables:
        batches = Batches.of(table, label="click", batch_size=3, shuffle=False, shard=Shard(0, 1))
        (clicks,) = batches.batches()
        assert clicks.label.tolist() == [1, 0, 1]
        assert clicks.features.keys() == set(table if table is ROWS else table.column_names) - {
            "click",
            "price",
        }
        assert clicks.dense["price"].dtype == np.float32
        assert clicks.features["city"][0] == clicks.features["city"][2]
        assert clicks.features["tags"].tolist() == [[1, 2], [], [3]]
    options = {"features": ["user"], "dense": ["pair"], "shard": Shard(0, 1)}
    (clicks,) = Batches.of(ROWS, label="click", batch_size=3, **options).batches()
    assert clicks.features.keys() == {"user"}
    assert clicks.dense["pair"].shape == (3, 2)


def test_batches_of_a_table_with_times():
    rows = {"click": np.array([1]), "at": np.array(["1970-01-01T00:00:01"], "datetime64[s]")}
    options = {"features": [Column("at", "time")], "shard": Shard(0, 1)}
    (clicks,) = Batches.of(rows, label="click", batch_size=1, **options).batches()
    assert clicks.features["at"].tolist() == [1_000_000]


def test_batches_of_a_table_with_views_of_strings():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"click": [1, 0], "city": pa.array(["Rome", "Oslo"], pa.string_view())})
    (clicks,) = Batches.of(table, label="click", batch_size=2, shard=Shard(0, 1)).batches()
    assert sorted(clicks.features["city"]) == sorted(string_keys(["Rome", "Oslo"]).numpy())


DATA_FRAME = """
import pandas
from tfhybrid.data import Batches, Shard, string_keys
from tfhybrid.errors import ConfigError

frame = pandas.DataFrame(
    {"click": [1, 0], "user": [7, 8], "city": ["Rome", "Oslo"]}, index=[5, 6]
)
(clicks,) = Batches.of(frame, label="click", batch_size=2, shard=Shard(0, 1)).batches()
assert sorted(clicks.features["user"]) == [7, 8]
assert sorted(clicks.features["city"]) == sorted(string_keys(["Rome", "Oslo"]).numpy())

class Frame(pandas.DataFrame):
    pass


(clicks,) = Batches.of(Frame(frame), label="click", batch_size=2, shard=Shard(0, 1)).batches()
assert clicks.features.keys() == {"user", "city"}

by_user = frame.set_index("user")
try:
    Batches.of(by_user, label="click", batch_size=2, shard=Shard(0, 1))
except ConfigError as error:
    assert "reset_index()" in str(error) and "['user']" in str(error)
else:
    raise AssertionError("the index was left out in silence")
Batches.of(by_user, label="click", batch_size=2, features=["city"], shard=Shard(0, 1))
try:
    Batches.of(frame["click"], label="click", batch_size=2, shard=Shard(0, 1))
except ConfigError as error:
    assert "Received: Series" in str(error)
"""


def test_batches_of_a_data_frame():
    # A process of its own: pyarrow remembers for good whether pandas could be imported once.
    frames = ROOT / "build" / "frames"  # scripts/test unit installs pandas there
    paths = [str(frames), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", DATA_FRAME], env=env, check=True)


@pytest.mark.parametrize(
    ("table", "options", "error", "wanted"),
    [
        (ROWS, {"features": ["nobody"]}, ConfigError, r"must have the columns \['nobody'\]"),
        (
            {"click": [1], "at": np.array(["2026-11-27"], "datetime64[s]")},
            {},
            DataError,
            "'at'.*Received: timestamp",
        ),
        ({"click": [1, None], "user": [1, 2]}, {}, DataError, "'click', row 1"),
        ({"click": [1, 0], "user": [1, None]}, {}, DataError, "'user', row 1.*missing_key="),
        ({"click": [1, 0], "user": [1]}, {}, ConfigError, "arrays of one length"),
        (3, {}, ConfigError, "Received: int"),
        (ROWS, {"features": ["user", "click"]}, ConfigError, r"label=\['click'\]"),
        (ROWS, {"features": "user"}, ConfigError, r"such as \['user'\]"),
        (ROWS, {"missing_keys": -1}, ConfigError, "'missing_keys'. Did you mean 'missing_key'?"),
        (ROWS, {"droop_remainder": True}, ConfigError, "Did you mean 'drop_remainder'?"),
        (ROWS, {"zzz": 1}, ConfigError, "has no argument 'zzz'. Expected: table, label"),
    ],
)
def test_tables_that_are_refused(table, options, error, wanted):
    with pytest.raises(error, match=wanted):
        Batches.of(table, label="click", batch_size=1, shard=Shard(0, 1), **options)
