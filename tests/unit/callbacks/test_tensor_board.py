from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.unit.callbacks.event_files import read
from tfhybrid.callbacks.tensor_board import _of_owners
from tfhybrid.core.native import PHASES
from tfhybrid.errors import ConfigError
from tfhybrid.store import ShardSize

pytestmark = pytest.mark.usefixtures("job")

STEPS, EVERY = 10, 4


@pytest.fixture
def written(tmp_path) -> dict[str, dict[int, float]]:
    """Each step has three keys, one of them twice: step `s` has `s`, `s + 1` and 1000."""
    config = tfhybrid.TableConfig(
        2, admission=2, eviction=tfhybrid.Eviction(unseen_steps=3, every_steps=1)
    )
    layer = tfhybrid.layers.Embedding(config, name="item")
    inputs = keras.Input((4,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    steps = np.arange(STEPS)
    keys = np.stack([steps, steps + 1, steps + 1, np.full(STEPS, 1000)], axis=1)
    board = tfhybrid.callbacks.TensorBoard(tmp_path, every_steps=EVERY, norm_quantiles=(0.5, 1))
    model.fit(
        keys, np.ones(STEPS), batch_size=1, shuffle=False, epochs=1, verbose=0, callbacks=[board]
    )
    written = read(tmp_path)
    (block,) = layer.table.blocks()
    norms = np.linalg.norm(block.embeddings, axis=1)
    assert written["tables/item/norm/1"][STEPS] == pytest.approx(norms.max())
    assert written["tables/item/norm/0.5"][STEPS] == pytest.approx(np.median(norms))
    return written


def test_tables_are_written_every_so_many_steps_and_at_the_end_of_an_epoch(written) -> None:
    assert list(written["tables/item/rows"]) == [4, 8, 10]
    # Key k is admitted in step k (its second), and goes three steps after: four rows remain.
    assert written["tables/item/rows"] == {4: 4, 8: 4, 10: 4}
    assert written["tables/item/waiting_keys"] == {4: 2, 8: 2, 10: 2}
    assert written["tables/item/new_keys"] == {4: 4 / 4, 8: 1, 10: 1}
    assert written["tables/item/evicted_keys"] == {4: 0, 8: 1, 10: 1}
    assert set(written["tables/item/unique_ratio"].values()) == {0.75}
    assert all(written["tables/item/bytes"][step] > 0 for step in (4, 8, 10))


def test_phases_are_written_in_milliseconds_of_a_step(written) -> None:
    assert {tag.removeprefix("phase_ms/") for tag in written if "phase_ms" in tag} == set(PHASES)
    for phase in ("lookup", "sum", "post", "plan", "apply", "settle"):
        assert all(0 < ms < 1e4 for ms in written[f"phase_ms/{phase}"].values()), phase
    assert set(written["phase_ms/exchange"].values()) == {0}


def test_it_wants_a_number_of_steps(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"at least 1\. Received: every_steps=0"):
        tfhybrid.callbacks.TensorBoard(tmp_path, every_steps=0)


def test_training_comes_first_and_says_loss_and_samples(written) -> None:
    assert min(written) == "main/loss"
    assert sorted({tag.partition("/")[0] for tag in written}) == ["main", "phase_ms", "tables"]
    assert list(written["main/loss"]) == [4, 8, 10]
    assert all(0 < loss < 10 for loss in written["main/loss"].values())
    assert all(rate > 0 for rate in written["main/samples_per_second"].values())


def test_metrics_and_evaluations_of_all_ranks_are_written_and_each_run_is_a_curve(tmp_path) -> None:
    keys, labels = np.arange(8)[:, None], np.array([0, 1] * 4)
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), name="key")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    auc = keras.metrics.AUC(from_logits=True, name="auc")
    model.compile(tfhybrid.DistributedOptimizer("sgd"), loss, metrics=[auc])
    for run in ("first", "second"):
        evaluate = tfhybrid.callbacks.Evaluate(
            tf.data.Dataset.from_tensor_slices((keys, labels[:, None])).batch(4)
        )
        board = tfhybrid.callbacks.TensorBoard(tmp_path, run=run, every_steps=1)
        model.fit(keys, labels, batch_size=4, epochs=2, verbose=0, callbacks=[evaluate, board])
    runs = sorted(path.name for path in tmp_path.iterdir())
    assert runs == ["first", "second"]
    tags = set()
    for path in (tmp_path / "second").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    assert {"main/loss", "main/auc", "main/val_auc", "main/samples_per_second"} <= tags


def test_a_table_in_files_says_how_often_its_cache_had_the_rows(tmp_path) -> None:
    (tmp_path / "files").mkdir()
    storage = tfhybrid.FileTier(tmp_path / "files", cache_bytes=2**20)
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2, storage=storage), name="key")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    board = tfhybrid.callbacks.TensorBoard(tmp_path / "logs", every_steps=3)
    keys = np.arange(8)[:, None] % 4  # each comes again after four steps
    model.fit(keys, np.ones(8), batch_size=1, shuffle=False, verbose=0, callbacks=[board])
    written = read(tmp_path / "logs")
    stats = layer.table.stats()
    by_step = written["tables/key/cache_hits"]
    assert 3 * by_step[3] + 3 * by_step[6] + 2 * by_step[8] == pytest.approx(stats.cache_hits)
    assert stats.cache_hits == 4
    assert set(written["tables/key/cache_misses"].values()) == {0}


def test_shards_of_owners_and_their_skew() -> None:
    shards = [ShardSize(host=0, rows=30, bytes=3), ShardSize(host=2, rows=10, bytes=1)]
    assert _of_owners("key", shards) == {
        **{"tables/key/owners/0/rows": 30, "tables/key/owners/0/bytes": 3},
        **{"tables/key/owners/2/rows": 10, "tables/key/owners/2/bytes": 1},
        "tables/key/skew": 1.5,
    }
