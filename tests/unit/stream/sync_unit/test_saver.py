"""Bases are written by the clock, and at the end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.stream.model_updates import begun_model, lease_update
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit


def bases(folder: Path) -> list[str]:
    return sorted(base.name for base in (folder / "ads").glob("base-*"))


def test_bases_come_by_the_clock_and_at_the_end(tmp_path: Path, shm_directory: Path) -> None:
    unit = SyncUnit(["ads"], tmp_path, shm_directory, save_seconds=0.05)
    model = begun_model(unit.models["ads"])
    model.apply(lease_update(0))
    end = time.monotonic() + 30
    while not bases(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    first = bases(tmp_path)
    assert len(first) == 1
    model.apply(lease_update(1))
    digests, version = model.digests(), model.version
    unit.close()
    assert bases(tmp_path)[:-1] == first  # one is kept, in case that the new one is damaged
    again = SyncUnit(["ads"], tmp_path, shm_directory)
    assert (again.models["ads"].digests(), again.models["ads"].version) == (digests, version)
    again.close()


def test_without_a_clock_nothing_is_written(tmp_path: Path, shm_directory: Path) -> None:
    unit = SyncUnit(["ads"], tmp_path, shm_directory)
    begun_model(unit.models["ads"]).apply(lease_update(0))
    unit.close()
    assert bases(tmp_path) == []


@pytest.mark.parametrize("updates", [0, 1])
def test_a_model_that_nobody_has_begun_is_left_alone(
    tmp_path: Path, shm_directory: Path, updates: int
) -> None:
    unit = SyncUnit(["ads", "news"], tmp_path, shm_directory, save_seconds=0.01)
    model = begun_model(unit.models["ads"])
    for number in range(updates):
        model.apply(lease_update(number))
    unit.close()
    assert len(bases(tmp_path)) == updates
    assert not list((tmp_path / "news").glob("base-*"))
