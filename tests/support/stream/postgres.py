"""A real PostgreSQL, which tests may stop."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.free_ports import two_free_ports
from tests.support.stream.broker import ROOT


class Postgres:
    """A server of PostgreSQL on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = two_free_ports()

    @property
    def password(self) -> str:
        return (self._folder / "password").read_text().strip()

    def address(self) -> dict[str, object]:
        """Returns the arguments of `psycopg.connect`."""
        return {
            "host": "127.0.0.1",
            "port": self._port,
            "user": "postgres",
            "password": self.password,
            "dbname": "postgres",
        }

    def start(self) -> None:
        self._script("start", str(self._folder), str(self._port))

    def stop(self) -> None:
        self._script("stop", str(self._folder))

    def _script(self, *arguments: str) -> None:
        subprocess.run([ROOT / "scripts" / "postgres", *arguments], check=True, timeout=90)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    subprocess.run([ROOT / "scripts" / "postgres", "install"], check=True)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to the server's user
        postgres = Postgres(Path(folder))
        postgres.start()
        yield postgres
        postgres.stop()
