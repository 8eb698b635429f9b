"""Three Keras trainers of `tfhybrid stream run`: the replay of the journal has the same bits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.reference.asynchronous import replayed
from tests.support.roles.clusters import until
from tests.support.stream.broker import ROOT
from tests.support.stream.stream_file import write_stream
from tfhybrid.data import ClickLog, IdSpace
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.stream_settings import StreamSettings

CLI = (sys.executable, "-m", "tfhybrid.cli", "stream")
ROWS, IDS = 1500, {"user": 60, "item": 40}


def _config(folder: Path, memory: Path, push: str) -> Path:
    trainer = [sys.executable, str(ROOT / "examples/online_trainer.py"), push, str(folder)]
    columns = {
        **dict.fromkeys(("time", "user", "item"), "int64"),
        "label": "float32",
        "medium": "string",
    }
    choices = {"staleness": 4, "trainers": {"trainer": {"count": 3, "command": trainer}}}
    return write_stream(folder, memory, columns, model="clicks", lease={"rows": 64}, **choices)


def _log(path: Path) -> Path:
    clicks = ClickLog({name: IdSpace(count) for name, count in IDS.items()}, seed=1).clicks(0, ROWS)
    columns = (clicks.features["user"], clicks.features["item"], clicks.label)
    rows = enumerate(zip(*(column.tolist() for column in columns), strict=True))
    lines = (
        {"time": row, "user": user, "item": item, "label": label, "medium": "video"}
        for row, (user, item, label) in rows
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("push", ["deltas", "gradients"])
def test_the_replay_of_a_run(push: str, tmp_path: Path, shm_directory: Path):
    config = _config(tmp_path, shm_directory, push)
    process = subprocess.Popen([*CLI, "run", str(config)], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        until(lambda: len(list(tmp_path.glob("trainer-*.jsonl"))) == 3, seconds=90)
        feed = [*CLI, "feed", str(config), str(_log(tmp_path / "clicks.jsonl")), "--rows", "100"]
        subprocess.run(feed, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        settings = StreamSettings.read(config)
        model = settings.remote_model("clicks", "test")
        journal = Path(settings.folder) / "models/clicks/journal"
        until(lambda: model.standing() == {"video": (QueuePosition(ROWS // 100, 0), 0)}, seconds=60)
        replay, updates = replayed(journal)
        keys = {name: np.arange(count) for name, count in IDS.items()}
        keys |= replay.spec.keys_of_weights()
        found, version = model.read(keys)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert sum(update.rows for update in updates) == ROWS
    assert len({update.trainer for update in updates}) == 3
    assert version == len(updates)
    for name in keys:
        np.testing.assert_array_equal(found[name], replay.lookup(name, keys[name]), err_msg=name)
