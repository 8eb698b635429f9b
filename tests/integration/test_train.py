"""`tfhybrid train` on two ranks, and what it is after kill -9."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from tfhybrid import checkpoint

COMMANDS = Path(sys.executable).parent
SAMPLES, BATCH, EPOCHS = 20_000, 64, 2


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    columns = {
        name: rng.integers(0, size, SAMPLES)
        for name, size in (("user", 900), ("item", 90), ("label", 2))
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "day.parquet", row_group_size=1000)
    return {
        "data": {
            **{"train": str(tmp_path / "day.parquet"), "batch_size": BATCH},
            "features": ["user", "item"],
        },
        "model": {"name": "deepfm", "hidden": [8]},
        "table": {"dim": 4, "optimizer": {"name": "adam"}},
        "epochs": EPOCHS,
        "checkpoints": {"save_freq": 25, "max_to_keep": 2},
    }


def start(folder: Path, settings: dict[str, Any]) -> subprocess.Popen[str]:
    """Starts two ranks that save into a folder."""
    folder.mkdir(exist_ok=True)
    settings["checkpoints"] |= {"directory": str(folder / "saved")}
    (folder / "model.yaml").write_text(yaml.safe_dump(settings))
    command = [COMMANDS / "horovodrun", "--gloo", "-np", "2", COMMANDS / "tfhybrid", "train"]
    return subprocess.Popen(
        [*map(str, command), str(folder / "model.yaml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_job_that_is_killed_resumes_to_the_same_model(settings, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    told = start(whole, settings).communicate()[0]
    assert f"step {EPOCHS * -(-SAMPLES // BATCH)}" in told

    killed = start(broken, settings)
    while not checkpoint.steps(broken / "saved"):
        assert killed.poll() is None
        time.sleep(0.05)
    ranks = [
        each
        for each in psutil.Process(killed.pid).children(recursive=True)
        if "tfhybrid" in " ".join(each.cmdline()[:2])
    ]
    ranks[0].kill()
    told = killed.communicate()[0]
    assert killed.returncode != 0
    (stopped_at, *_) = reversed(checkpoint.steps(broken / "saved"))
    assert stopped_at < EPOCHS * SAMPLES // BATCH
    told = start(broken, settings).communicate()[0]
    assert f"Restored {broken}/saved/step-{stopped_at:010}" in told

    diff = [COMMANDS / "tfhybrid", "checkpoint", "diff", whole / "saved", broken / "saved"]
    found = json.loads(subprocess.check_output([*map(str, diff), "--json"]))
    assert found["a"]["step"] == found["b"]["step"]
    # A further call of fit draws from TensorFlow's generator; this model does not.
    assert [name for name in found["dense"]["changed"] if "/random/" not in name] == []
    for table in found["tables"]["compared"].values():
        assert not any(table[name] for name in ("added", "removed", "changed", "changed_states"))
