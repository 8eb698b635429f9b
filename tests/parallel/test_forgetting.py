"""Tables whose keys wait for admission and whose rows are evicted: a test for each combination.

All combinations train side by side in one model, once for each of the module's fixtures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.parallel.conftest import common_directory
from tests.support.reference.forgetting_job import CELLS, DIM, ForgettingJob
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.manager import CheckpointManager
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of
from tfhybrid.core.native import WAITING_SUFFIX
from tfhybrid.data import Position
from tfhybrid.store import RowBlock

STEPS = 24
HALF = 13
every_cell = pytest.mark.parametrize("cell", CELLS)


@pytest.fixture(scope="module", autouse=True)
def job() -> Iterator[None]:
    yield
    tfhybrid.shutdown()
    keras.backend.clear_session()


def start(**options) -> ForgettingJob:
    """Starts the job anew, as a new process would."""
    tfhybrid.shutdown()
    tfhybrid.init()
    return ForgettingJob(**options)


@pytest.fixture(
    scope="module", params=[pytest.param("own", marks=pytest.mark.world_size), "shared"]
)
def beside_reference(request) -> dict[str, SimpleNamespace]:
    """Keys, counters and embeddings by table, as they were and as they should have been."""
    job = start(shared=request.param == "shared")
    trainer = job.reference()
    seen = {cell: SimpleNamespace(found=[], wanted=[], new=0, evicted=0) for cell in CELLS}
    for step in range(1, STEPS + 1):
        job.train(step, step + 1)
        for wanted in trainer.tables.values():
            wanted.clock = job.time(step)
        trainer.step([job.batch(step, rank) for rank in range(tfhybrid.size())])
        for cell, of_cell in seen.items():
            table, wanted = job.tables[cell], trainer.tables[cell]
            stats = table.stats()
            keys = {int(key) for block in table.blocks() for key in block.keys}
            of_cell.found.append((keys, stats.waiting))
            of_cell.wanted.append((set(wanted.rows), len(wanted.waiting)))
            of_cell.new += stats.new_rows
            of_cell.evicted += stats.evicted_rows
    for cell, of_cell in seen.items():
        wanted = trainer.tables[cell]
        keys = np.array([*wanted.rows, *wanted.waiting, 10**12])
        of_cell.rows = job.tables[cell].lookup(keys), wanted.lookup(keys)
    return seen


@every_cell
def test_rows_are_those_of_the_reference(cell, beside_reference) -> None:
    seen = beside_reference[cell]
    assert seen.found == seen.wanted
    rows = len(seen.wanted[-1][0])
    assert seen.evicted > 0
    assert seen.new == seen.evicted + rows > seen.evicted
    found, wanted = seen.rows
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert len(set(distributed.allgather_object(found.tobytes()))) == 1


def histories(blocks: Iterable[RowBlock]) -> dict[int, bytes]:
    return {
        int(key): history.tobytes()
        for block in blocks
        for key, history in zip(block.keys, block.history, strict=True)
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> SimpleNamespace:
    """A run that was saved in the middle, and one that went on from there."""
    job = start()
    job.train(1, HALF)
    folder = checkpoint.save(job.model, common_directory(tmp_path_factory), Position(0, HALF))
    leads = tfhybrid.local_rank() == 0
    tables = checkpoint.dense.saved_tables_of(job.model)
    kept = {name: histories(t.blocks(states=True)) for name, t in tables.items() if leads}
    at_half = job.digests()
    job.train(HALF, STEPS)
    at_end = job.digests()
    restored = start()
    checkpoint.restore(restored.model, folder.parent)
    restored_at_half = restored.digests()
    restored.train(HALF, STEPS)
    return SimpleNamespace(
        stored=StoredCheckpoint.open(folder),
        histories=kept,
        half=(restored_at_half, at_half),
        end=(restored.digests(), at_end),
    )


@every_cell
def test_a_full_save_has_every_row_and_its_history(cell, saved) -> None:
    entries = saved.stored.manifest.tables
    waits = cell.startswith("after")
    assert (cell + WAITING_SUFFIX in entries) == waits
    assert entries[cell].event_time == ForgettingJob.time(HALF - 1)
    for name in [cell, cell + WAITING_SUFFIX] if waits else [cell]:
        entry = entries[name]
        assert (entry.history, entry.evicted, entry.version) == (True, None, HALF - 1)
        if saved.histories:
            assert histories(saved.stored.rows(name)) == saved.histories[name]


@every_cell
def test_what_is_restored_goes_on_as_if_nothing_had_happened(cell, saved) -> None:
    for found, wanted in (saved.half, saved.end):
        assert found[cell] == wanted[cell]


@pytest.fixture(scope="module")
def deltas(tmp_path_factory) -> SimpleNamespace:
    """A run that was saved as a chain of deltas, and two that went on from one of them."""
    directory = common_directory(tmp_path_factory)
    job = start()
    manager = CheckpointManager(job.model, directory, max_to_keep=None, full_every_saves=4)
    digests = {}
    for first in range(1, STEPS, 6):
        job.train(first, first + 6)
        manager.save(Position(0, first + 6))
        manager.wait()
        digests[first + 5] = job.digests()
    job.train(STEPS + 1, STEPS + 4)
    at_end = job.digests()
    pairs = []
    for step in (12, STEPS):
        restored = start()
        checkpoint.restore(restored.model, directory, step=step)
        pairs.append((restored.digests(), digests[step]))
    restored.train(STEPS + 1, STEPS + 4)
    pairs.append((restored.digests(), at_end))
    chain = [StoredCheckpoint.open(folder_of(directory, step)).manifest for step in digests]
    return SimpleNamespace(pairs=pairs, chain=chain)


@every_cell
def test_deltas_have_what_came_and_what_went(cell, deltas) -> None:
    entries = [manifest.tables[cell] for manifest in deltas.chain]
    assert [entry.whole for entry in entries] == [True, False, False, False]
    assert any(entry.evicted for entry in entries)
    for found, wanted in deltas.pairs:
        assert found[cell] == wanted[cell]


def test_rows_in_files_go_as_those_in_memory_do(tmp_path_factory) -> None:
    in_memory = start(by_norm=False)
    in_memory.train(1, STEPS)
    wanted = in_memory.digests()
    # A slot holds an embedding and Adagrad's state; a step has 27 keys at most.
    storage = tfhybrid.FileTier(common_directory(tmp_path_factory), 28 * (16 + 2 * 4 * DIM))
    job = start(by_norm=False, storage=storage)
    job.train(1, STEPS)
    assert job.digests() == wanted
    stats = [table.stats() for table in job.tables.values()]
    assert any(of_table.cache_misses for of_table in stats)
    assert all(of_table.evicted_rows for of_table in stats)
