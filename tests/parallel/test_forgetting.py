"""Tables whose keys wait for admission and whose rows are evicted: a cell for each combination."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import tfhybrid
from tests.reference.forgetting_job import ADMISSIONS, EVICTIONS, ForgettingJob
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.manager import CheckpointManager
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of

STEPS = 24
HALF = 13

every_cell = pytest.mark.parametrize(
    ("admission", "eviction"),
    [(admission, eviction) for admission in ADMISSIONS for eviction in EVICTIONS],
)


@pytest.fixture(autouse=True)
def job():
    tfhybrid.init()
    yield
    tfhybrid.shutdown()
    keras.utils.clear_session()


@pytest.fixture
def directory(tmp_path_factory) -> Path:
    return Path(distributed.broadcast_object(str(tmp_path_factory.mktemp("checkpoints"))))


def start(*cell: str | None, **options) -> ForgettingJob:
    """Starts the job anew, as a new process would."""
    tfhybrid.shutdown()
    tfhybrid.init()
    return ForgettingJob(*cell, **options)


def assert_equals_reference(job: ForgettingJob) -> None:
    """Trains beside the reference, and compares keys, counters and embeddings after every step."""
    trainer = job.reference()
    wanted = trainer.tables["item"]
    evicted = new = 0
    for step in range(1, STEPS + 1):
        job.train(step, step + 1)
        wanted.clock = job.time(step)
        before = set(wanted.rows)
        trainer.step([job.batch(step, rank) for rank in range(tfhybrid.size())])
        found = {int(key) for block in job.table.blocks() for key in block.keys}
        assert found == set(wanted.rows), step
        stats = job.table.stats()
        assert stats.waiting == len(wanted.waiting)
        new, evicted = new + stats.new_rows, evicted + stats.evicted_rows
        assert stats.new_rows - stats.evicted_rows == len(wanted.rows) - len(before)
    assert evicted > 0 and new == evicted + len(wanted.rows) > 0
    keys = np.array([*wanted.rows, *wanted.waiting, 10**12])
    np.testing.assert_allclose(job.table.lookup(keys), wanted.lookup(keys), atol=1e-6)
    assert len(set(distributed.allgather_object(job.table.lookup(keys).tobytes()))) == 1


@every_cell
def test_a_table_of_one_feature(admission, eviction) -> None:
    assert_equals_reference(ForgettingJob(admission, eviction))


@every_cell
def test_a_table_that_features_share(admission, eviction) -> None:
    assert_equals_reference(ForgettingJob(admission, eviction, shared=True))


@every_cell
def test_what_is_restored_goes_on_as_if_nothing_had_happened(
    admission, eviction, directory
) -> None:
    job = start(admission, eviction)
    job.train(1, HALF)
    checkpoint.save(job.model, directory, checkpoint.Position(0, HALF))
    saved = job.digests()
    job.train(HALF, STEPS)

    restored = start(admission, eviction)
    checkpoint.restore(restored.model, directory)
    assert restored.digests() == saved
    restored.train(HALF, STEPS)
    assert restored.digests() == job.digests()


def histories(blocks) -> dict[int, bytes]:
    return {
        int(key): history.tobytes()
        for block in blocks
        for key, history in zip(block.keys, block.history, strict=True)
    }


@every_cell
def test_a_full_save_has_every_row_and_its_history(admission, eviction, directory) -> None:
    job = start(admission, eviction)
    job.train(1, HALF)
    folder = checkpoint.save(job.model, directory, checkpoint.Position(0, HALF))
    stored = StoredCheckpoint.open(folder)
    stored.check()
    for table in (job.table, job.table.waiting):
        if table is None:
            continue
        entry = stored.manifest.tables[table.name]
        assert (entry.history, entry.evicted, entry.version) == (True, None, HALF - 1)
        if tfhybrid.local_rank() == 0:
            assert histories(stored.rows(table.name)) == histories(table.blocks(states=True))
    assert (f"item{tfhybrid.store.native.WAITING_SUFFIX}" in stored.manifest.tables) == (
        job.table.waiting is not None
    )
    assert stored.manifest.tables["item"].event_time == job.time(HALF - 1)


@every_cell
def test_deltas_have_what_came_and_what_went(admission, eviction, directory) -> None:
    job = start(admission, eviction)
    manager = CheckpointManager(job.model, directory, max_to_keep=None, full_every=4)
    digests = {}
    for first in range(1, STEPS, 6):
        job.train(first, first + 6)
        manager.save(checkpoint.Position(0, first + 6))
        manager.wait()
        digests[first + 5] = job.digests()
    entries = [
        StoredCheckpoint.open(folder_of(directory, step)).manifest.tables["item"]
        for step in digests
    ]
    assert [entry.whole for entry in entries] == [True, False, False, False]
    assert any(entry.evicted for entry in entries)
    job.train(STEPS + 1, STEPS + 4)
    wanted = job.digests()
    for step in (12, STEPS):
        restored = start(admission, eviction)
        checkpoint.restore(restored.model, directory, step=step)
        assert restored.digests() == digests[step]
    restored.train(STEPS + 1, STEPS + 4)
    assert restored.digests() == wanted
