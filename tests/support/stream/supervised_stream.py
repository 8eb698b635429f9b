"""The processes of a stream, under `tfhybrid stream run`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.roles.clusters import until
from tests.support.stream.broker import ROOT
from tests.support.stream.counting_trainer import SPEC
from tests.support.stream.stream_file import write_stream
from tfhybrid.stream.stream_settings import StreamSettings

CLI = (sys.executable, "-m", "tfhybrid.cli", "stream")
COUNTING = [sys.executable, "-m", "tests.support.stream.counting_trainer"]


def write_config(folder: Path, memory: Path, publish: object = None, **trainers: object) -> Path:
    columns = {"item": "int64", "medium": "string"}
    choices = {"lease": {"rows": 16}, "expires_seconds": 1.0, "trainers": trainers}
    choices["publish"] = publish or {}
    return write_stream(folder, memory, columns, **choices)


class Running:
    """A `tfhybrid stream run` of a configuration."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self.settings = StreamSettings.read(config)
        self._process = subprocess.Popen(
            [*CLI, "run", "--json", str(config)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )

    def processes(self) -> dict[str, dict[str, int]]:
        found = json.loads((Path(self.settings.folder) / "processes/processes.json").read_text())
        return dict(found)

    def feed(self, items: range) -> None:
        file = self._config.parent / f"{items.start}.jsonl"
        rows = [{"item": item, "medium": "video"} for item in items]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        until(Path(self.settings.token_file).exists)
        subprocess.run([*CLI, "feed", str(self._config), str(file)], cwd=ROOT, check=True)

    def counts(self, items: int) -> np.ndarray:
        model = self.settings.remote_model("ads", "test")
        model.open(SPEC, [])
        return model.read({"item": np.arange(items)})[0]["item"][:, 0]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self, status: int = 0) -> list[dict[str, Any]]:
        """Stops it, and returns what it has said; the last line is the audit."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(status)

    def wait(self, status: int = 0) -> list[dict[str, Any]]:
        output, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == status
        return [json.loads(line) for line in output.splitlines()]
