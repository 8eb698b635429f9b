"""The services of docker/stream/compose.yaml, from the same image, with the tests' broker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.image.containers import IMAGE, UID
from tests.support.free_ports import two_free_ports
from tests.support.roles.clusters import until
from tests.support.stream.broker import ROOT, Broker, broker
from tfhybrid.data import ClickLog, IdSpace

__all__ = ["broker"]  # the fixture
ROWS = 2000
CONTAINER = "stream"  # roles share it, as those of one machine would
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What the image sees as /home/tfhybrid/stream; its container is gone afterwards."""
    os.chown(tmp_path, UID, UID)
    yield tmp_path
    subprocess.run([IMAGE, "remove", CONTAINER], stderr=subprocess.DEVNULL, check=False)


def command(folder: Path, line: list[str]) -> list[str]:
    """Returns a command line that runs one in the image."""
    volume = ("--volume", f"{folder}:/home/tfhybrid/stream", "--hostname", "localhost")
    told = ("--env", "TFHYBRID_STREAM=stream/stream.yaml")
    return [IMAGE, "run", CONTAINER, *volume, *told, "--", *line]


def written(folder: Path, servers: str) -> None:
    """Writes the stream's settings for one machine, its token, and rows."""
    said = yaml.safe_load((ROOT / "docker/stream/stream.yaml").read_text())
    port = two_free_ports()
    said |= {"provider": f"127.0.0.1:{port}", "sync": f"127.0.0.1:{port + 1}"}
    said |= {"queues": {"video": f"kafka://{servers}/clicks.video"}}
    said |= {"token_file": "stream/token"}
    (folder / "stream.yaml").write_text(yaml.safe_dump(said))
    (folder / "token").write_text("a secret of the test")
    clicks = ClickLog({"user": IdSpace(60), "item": IdSpace(40)}, seed=1).clicks(0, ROWS)
    columns = (clicks.features["user"], clicks.features["item"], clicks.label)
    lines = (
        {"time": row, "user": user, "item": item, "label": label, "medium": "video"}
        for row, (user, item, label) in enumerate(zip(*map(list, columns), strict=True))
    )
    text = "".join(json.dumps(line, default=lambda number: number.item()) + "\n" for line in lines)
    (folder / "clicks.jsonl").write_text(text)


def trained(folder: Path) -> int:
    """Returns how many rows trainers have written predictions of."""
    lines = (line for path in folder.glob("*-*.jsonl") for line in path.open())
    return sum(len(json.loads(line)["time"]) for line in lines if line.endswith("\n"))


def test_the_services_train_what_is_fed(folder: Path, broker: Broker) -> None:
    written(folder, broker.servers)
    services = yaml.safe_load((ROOT / "docker/stream/compose.yaml").read_text())["services"]
    lines = {
        name: service["command"].replace(" stream.yaml", " stream/stream.yaml").split()
        for name, service in services.items()
        if name != "broker"
    }
    feed = lines.pop("feed")
    with ExitStack() as stack:

        def started(line: list[str]) -> subprocess.Popen:
            process = stack.enter_context(subprocess.Popen(command(folder, line)))
            stack.callback(process.terminate)
            return process

        services = {name: started(line) for name, line in lines.items()}
        feeding = started(feed)

        def all_trained() -> bool:
            assert [name for name, each in services.items() if each.poll() is not None] == []
            assert feeding.poll() in (None, 0)
            return feeding.poll() == 0 and trained(folder) >= ROWS

        until(all_trained, seconds=200)
    assert trained(folder) == ROWS
