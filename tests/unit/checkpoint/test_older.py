"""Checkpoints of every older version that saved others: `older/NAME`, written by `older/job.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.unit.checkpoint.older import job as saved_job
from tfhybrid import checkpoint
from tfhybrid.checkpoint import dense
from tfhybrid.checkpoint.stored import folder_of
from tfhybrid.cli.checkpoint.verification import verify
from tfhybrid.data import Position

OLDER = Path(saved_job.__file__).parent


@pytest.fixture
def model() -> Iterator[keras.Model]:
    """Of the job that saved them, started anew."""
    yield saved_job.start()
    tfhybrid.shutdown()
    keras.backend.clear_session()


@needs_keras_3  # which saved them: optimizers of Keras 2 have other variables
@pytest.mark.parametrize(
    "name", sorted(folder.parent.name for folder in OLDER.glob("*/worth.json"))
)
def test_it_is_restored_and_trained(name: str, model: keras.Model) -> None:
    wanted = json.loads((OLDER / name / "worth.json").read_text())
    folders = [folder_of(OLDER / name, step) for step in checkpoint.steps(OLDER / name)]
    assert [found["problems"] for found in verify(folders)] == [[], []]
    position = checkpoint.restore(model, OLDER / name)
    assert position == Position(0, saved_job.STEPS)
    _assert_worth(model, wanted["saved"], exact=True)
    saved_job.train(model, saved_job.STEPS, saved_job.STEPS)
    _assert_worth(model, wanted["later"], exact=False)


def _assert_worth(model, wanted, *, exact: bool) -> None:
    worth = saved_job.worth(model)
    for what in ("rows", "waiting", "versions"):
        assert worth[what] == wanted[what]
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-4, "atol": 1e-6}
    for table, rows in wanted["lookups"].items():
        np.testing.assert_allclose(worth["lookups"][table], rows, **tolerance)
    for found, weight in zip(worth["dense"], wanted["dense"], strict=True):
        np.testing.assert_allclose(found, weight, **tolerance)


@needs_keras_3
def test_keys_without_a_row_read_their_initial_values_as_they_did(model: keras.Model) -> None:
    """Outside of training too: older versions had no other choice."""
    checkpoint.restore(model, OLDER / "optimizer-start")
    tables = dense.tables_of(model)
    assert tables
    assert {table.unseen for table in tables.values()} == {"initial"}
