"""Checkpoints on a disk that loses power or fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.disk import crash_states
from tests.unit.disk.saving_job import SAVES, sound_steps
from tests.unit.disk.watched_disk import HERE, preloaded


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    """What saving_job.py leaves, in its folder."""
    folder = tmp_path_factory.mktemp("disk")
    env = preloaded(folder)
    subprocess.run([sys.executable, HERE / "saving_job.py", folder], env=env, check=True)
    return folder


def test_power_may_be_lost_at_any_moment(job: Path, tmp_path: Path) -> None:
    """Every checkpoint that is seen is whole, and none is older than the one before."""
    calls: list[crash_states.Call] = []
    newest, looked_at = 0, 0
    for number in range(SAVES):
        first = len(calls)
        calls += crash_states.read_journal(job / f"journal-{number}", job / "saved")
        step = min(number + 1, SAVES - 1)
        for tree in crash_states.trees(calls, first):
            folder = tmp_path / str(looked_at)
            folder.mkdir()
            crash_states.write(tree, folder)
            found = sound_steps(folder)
            assert max(found, default=0) in (newest, step)
            looked_at += 1
        newest = step
    assert found == [newest]  # of the last tree, from which nothing is missing
    assert looked_at > 100


def test_a_save_in_which_a_call_fails_leaves_what_there_was(job: Path) -> None:
    saves = json.loads((job / "result.json").read_text())["saves"]
    failed = [save for save in saves if save["error"]]
    assert len(failed) > 15
    for save in saves:
        newest = save["after"][-1]
        assert newest == save["step"] or (save["error"] and newest == save["before"])
    for save in failed:
        assert "could not be written" in save["error"] or "cannot be saved" in save["error"]


def test_a_restore_in_which_a_call_fails_changes_nothing(job: Path) -> None:
    restores = json.loads((job / "result.json").read_text())["restores"]
    assert len([restore for restore in restores if restore["error"]]) > 20
    assert [number for number, restore in enumerate(restores, 1) if not restore["same"]] == []
    assert not restores[-1]["error"]
