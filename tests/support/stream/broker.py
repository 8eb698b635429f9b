"""A real broker, which tests may kill."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.free_ports import two_free_ports

ROOT = Path(__file__).resolve().parents[3]


class Broker:
    """One node of Apache Kafka on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = two_free_ports()
        self.servers = f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self._script("start", str(self._folder), str(self._port))

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        os.kill(int((self._folder / "pid").read_text()), number)

    def stop(self) -> None:
        self._script("stop", str(self._folder))

    def producer(self, topic: str) -> subprocess.Popen:
        """Starts Kafka's console producer, which takes lines of headers, key and value."""
        return subprocess.Popen(
            [ROOT / "scripts" / "kafka", "produce", str(self._port), topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _script(self, *arguments: str) -> None:
        subprocess.run([ROOT / "scripts" / "kafka", *arguments], check=True, timeout=90)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    subprocess.run([ROOT / "scripts" / "kafka", "install"], check=True)
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()
