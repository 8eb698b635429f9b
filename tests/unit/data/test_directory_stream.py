from __future__ import annotations

import itertools
import logging
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

import tfhybrid
from tfhybrid.data import (
    END_MARKER,
    Clicks,
    Csv,
    DirectoryStream,
    Parquet,
    Shard,
    StreamPosition,
)
from tfhybrid.data.archives import unpacked
from tfhybrid.errors import ConfigError, DataError

read_users = Csv(["user"]).read
read_ratings = Csv(["user", "movie"], label="rating", positive=4.0).read


def publish(directory, name, lines):
    scratch = directory / f"{name}.tmp"
    scratch.write_text("".join(lines))
    scratch.rename(directory / name)


def publish_users(directory, name, users):
    publish(directory, name, ["label,user\n", *(f"0,{user}\n" for user in users)])


def published(directory, *counts):
    """Publishes files of so many users each, numbered throughout, and the end."""
    begin = 0
    for number, count in enumerate(counts):
        publish_users(directory, f"{number:04}.csv", range(begin, begin + count))
        begin += count
    (directory / END_MARKER).touch()
    return directory


def stream(directory, batch_size=4, rank=0, size=1):
    return DirectoryStream(
        directory,
        read_users,
        batch_size=batch_size,
        poll_seconds=0.005,
        shard=Shard(rank, size),
    )


def users_of(batches):
    return [batch.features["user"].tolist() for batch in batches]


def test_files_are_read_in_order_of_name(tmp_path):
    assert users_of(stream(published(tmp_path, 6, 0, 3)).batches()) == [
        [0, 1, 2, 3],
        [4, 5],
        [6, 7, 8],
    ]


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_ranks_together_take_every_sample_once_in_equal_steps(
    tmp_path_factory, counts, batch_size, size
):
    directory = published(tmp_path_factory.mktemp("stream"), *counts)
    ranks = [users_of(stream(directory, batch_size, r, size).batches()) for r in range(size)]
    taken = sorted(user for steps in ranks for batch in steps for user in batch)

    assert len({len(steps) for steps in ranks}) == 1
    assert taken == list(range(len(taken)))
    assert sum(counts) - len(taken) < size


@given(st.lists(st.integers(0, 12), max_size=5), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_resuming_anywhere_equals_one_run(tmp_path_factory, counts, batch_size, size):
    directory = published(tmp_path_factory.mktemp("stream"), *counts)
    whole_stream = stream(directory, batch_size, size - 1, size)
    whole = users_of(whole_stream.batches())

    for steps in range(1, len(whole) + 1):
        resumed = stream(directory, batch_size, size - 1, size)
        assert users_of(resumed.batches(whole_stream.position(steps))) == whole[steps:]


def test_samples_too_few_for_the_ranks_are_told_and_kept(tmp_path, caplog):
    ended = stream(published(tmp_path, 5, 1), 2, rank=0, size=2)
    with caplog.at_level(logging.WARNING, "tfhybrid"):
        batches = users_of(ended.batches())
    assert batches == [[0, 1]]  # the fifth joins rank 1's part
    assert "1 samples left, too few for 2 ranks" in caplog.text

    (tmp_path / END_MARKER).unlink()
    publish_users(tmp_path, "0002.csv", [6])
    (tmp_path / END_MARKER).touch()
    position = ended.position(1)
    assert [users_of(stream(tmp_path, 2, rank, 2).batches(position)) for rank in range(2)] == [
        [[5]],
        [[6]],
    ]


def test_files_that_appear_later_are_picked_up(tmp_path):
    """The producer writes a file only once the reader has used up the one before."""
    used = threading.Semaphore(0)

    def produce():
        for number in range(5):
            publish_users(tmp_path, f"{number}.csv", [number, number + 100])
            assert used.acquire(timeout=30)
        (tmp_path / END_MARKER).touch()

    producer = threading.Thread(target=produce)
    producer.start()
    seen = []
    for features, _ in stream(tmp_path).dataset():
        seen.append(features["user"].numpy()[:, 0].tolist())
        used.release()
    producer.join()

    assert seen == [[number, number + 100] for number in range(5)]


def test_a_dataset_is_typed_and_reads_the_same_each_time(tmp_path):
    dataset = stream(published(tmp_path, 6, 3)).dataset(StreamPosition("0000.csv", 4))

    assert dataset.element_spec[0]["user"] == tf.TensorSpec([None, 1], tf.int64)
    first, again = ([f["user"].numpy()[:, 0].tolist() for f, _ in dataset] for _ in range(2))
    assert first == again == [[4, 5], [6, 7, 8]]


def test_an_iteration_that_waits_for_files_can_be_abandoned(tmp_path):
    publish_users(tmp_path, "0.csv", [1])
    iterator = iter(stream(tmp_path).dataset())

    assert next(iterator)[0]["user"].numpy().tolist() == [[1]]
    del iterator  # would not return


def test_close_ends_an_iteration_that_waits(tmp_path):
    publish_users(tmp_path, "0.csv", [1])
    with stream(tmp_path) as open_stream:
        batches = open_stream.batches()
        assert users_of([next(batches)]) == [[1]]
        closer = threading.Timer(0.01, open_stream.close)
        closer.start()
        assert list(batches) == []
        closer.join()


def test_close_ends_an_iteration_within_a_file(tmp_path):
    open_stream = stream(published(tmp_path, 12))
    batches = open_stream.batches()
    next(batches)
    open_stream.close()

    assert list(batches) == []


def test_files_under_another_name_and_the_marker_are_not_read(tmp_path):
    (tmp_path / "0001.csv.tmp").write_text("half a fi")
    published(tmp_path, 2)

    everything = DirectoryStream(
        tmp_path, read_users, batch_size=4, pattern="[!.]*[!p]", shard=Shard(0, 1)
    )
    assert users_of(stream(tmp_path).batches()) == [[0, 1]]
    assert users_of(everything.batches()) == [[0, 1]]


def test_a_file_published_out_of_order_is_refused(tmp_path):
    publish_users(tmp_path, "2.csv", [1])
    batches = stream(tmp_path).batches()
    next(batches)
    publish_users(tmp_path, "1.csv", [2])

    with pytest.raises(
        DataError, match=r"increasing order of name\. Received: 1\.csv after 2\.csv"
    ):
        next(batches)


def test_a_position_that_is_gone_is_refused(tmp_path):
    published(tmp_path, 4, 4)
    (tmp_path / "0000.csv").unlink()

    with pytest.raises(DataError, match=r"Expected 0000\.csv .* Received: 0001\.csv"):
        list(stream(tmp_path).batches(StreamPosition("0000.csv", 2)))
    with pytest.raises(DataError, match=r"Received: row 9 from 0001\.csv on, where 4 samples"):
        list(stream(tmp_path).batches(StreamPosition("0001.csv", 9)))
    with pytest.raises(ConfigError, match=r"Received: step 7"):
        stream(tmp_path).position(7)


def test_a_malformed_file_ends_the_dataset_with_its_line(tmp_path):
    publish_users(tmp_path, "0.csv", [1, 2])
    publish_users(tmp_path, "1.csv", [3, "?"])
    dataset = stream(tmp_path).dataset()

    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"1\.csv, column 'user', line 3: .*'\?'"
    ):
        list(dataset)


@pytest.mark.parametrize(
    ("users", "received"),
    [
        (pa.array(["123"]), "expected numbers, as in .*0.parquet. Received: strings"),
        (pa.array([[123]]), "expected numbers, as in .*0.parquet. Received: lists of numbers"),
    ],
)
def test_files_whose_columns_have_other_types_are_refused(tmp_path, users, received):
    for number, column in enumerate([pa.array([123]), users]):
        table = pa.table({"label": [0], "user": column})
        pa.parquet.write_table(table, tmp_path / f"{number}.parquet")
    (tmp_path / END_MARKER).touch()
    read = Parquet(["user"]).read
    batches = DirectoryStream(
        tmp_path, read, batch_size=1, pattern="*.parquet", shard=Shard(0, 1)
    ).batches()
    assert next(batches).features["user"].tolist() == [123]
    with pytest.raises(DataError, match=rf"1\.parquet, column 'user': {received}"):
        next(batches)


@pytest.mark.parametrize("empty", ["0", "2"])
def test_files_without_samples_may_lack_types(tmp_path, empty):
    nothing = pa.array([], pa.null())
    tables = {
        empty: pa.table({"label": nothing, "tags": nothing}),
        "1": pa.table({"label": [1, 0], "tags": [[1, 2], [3]]}),
    }
    for name, table in tables.items():
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
    (tmp_path / END_MARKER).touch()
    read = Parquet(["tags"]).read
    files = DirectoryStream(tmp_path, read, batch_size=2, pattern="*.parquet", shard=Shard(0, 1))
    batches = [batch.features["tags"].tolist() for batch in files.batches()]
    assert batches == [[[1, 2], [3]]]


def test_columns_of_a_reader_of_ones_own_are_compared(tmp_path):
    published(tmp_path, 1, 1)

    def read(path):
        names = ["user"] if path.name == "0000.csv" else ["user", "more"]
        return Clicks({name: np.array([1]) for name in names}, np.zeros(1, np.float32))

    batches = DirectoryStream(tmp_path, read, batch_size=1, shard=Shard(0, 1)).batches()
    next(batches)
    with pytest.raises(DataError, match=r"0001\.csv: expected .* Received: .*'more'"):
        next(batches)


def test_a_stream_without_files_or_directory_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"Expected files \*\.csv"):
        stream(published(tmp_path)).dataset()
    with pytest.raises(ConfigError, match=r"Received: .*nowhere"):
        stream(tmp_path / "nowhere")


class Publisher(keras.callbacks.Callback):
    """Publishes the next piece of a log when `fit` has trained all samples of the ones before."""

    def __init__(self, directory, header, pieces, seen):
        super().__init__()
        self._directory, self._header, self._seen = directory, header, seen
        self._pieces = iter(enumerate(pieces))
        self._awaited = 0
        self.publish_next()

    def publish_next(self):
        number, piece = next(self._pieces, (None, None))
        if piece is None:
            (self._directory / END_MARKER).touch()
            return
        publish(self._directory, f"{number:04}.csv", [self._header, *piece])
        self._awaited += len(piece)

    def on_train_batch_end(self, batch, logs=None):
        if len(self._seen) == self._awaited:
            self.publish_next()


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # how Keras says that it ended
def test_fit_replays_movielens_as_it_arrives(job, real_data, tmp_path):
    """Each file appears only after `fit` has trained on all before it; new users get rows."""
    with (unpacked("movielens-stream") / "ratings_by_time.csv").open() as lines:
        header, *ratings = lines.readlines()
    pieces = [ratings[begin : begin + 10_000] for begin in range(0, len(ratings), 10_000)]
    seen = []

    class Record(keras.layers.Layer):
        def call(self, users):
            tf.py_function(lambda u: seen.extend(u.numpy()[:, 0].tolist()), [users], [])
            return users

    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in ("user", "movie")}
    users = Record(dtype="int64")(inputs["user"])
    bias = tfhybrid.TableConfig(dim=1)
    layer = tfhybrid.layers.EmbeddingCollection({"user": bias, "movie": bias})
    biases = layer({"user": users, "movie": inputs["movie"]})
    logit = keras.layers.Flatten()(keras.layers.Add()(list(biases.values())))
    model = keras.Model(inputs, logit)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))

    publisher = Publisher(tmp_path, header, pieces, seen)
    with DirectoryStream(
        tmp_path, read_ratings, batch_size=1000, poll_seconds=0.005, shard=Shard(0, 1)
    ) as stream:
        history = model.fit(stream.dataset(), callbacks=[publisher], shuffle=False, verbose=0)

    assert seen == [int(line.split(",")[1]) for line in ratings]
    firsts = [len(set(seen[: begin + 10_000])) for begin in range(0, len(seen), 10_000)]
    assert sum(later > earlier for earlier, later in itertools.pairwise(firsts)) > 15
    assert layer.tables["user"].stats().rows == len(set(seen))
    assert history.history["loss"][0] < 0.69
