"""A stream with certificates: its ports speak TLS, refuse others, and say so in their logs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.certificates.authority import Authority
from tests.support.free_ports import two_free_ports
from tests.support.roles.clusters import certified, until
from tests.support.stream.broker import ROOT
from tests.support.stream.supervised_stream import CLI, COUNTING, Running, write_config
from tfhybrid.errors import StreamError
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.remote import Remote
from tfhybrid.serving import RemoteReader
from tfhybrid.settings import TlsFiles
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit


class Stream(NamedTuple):
    """Its processes, and of each port the address and the log."""

    running: Running
    ports: dict[str, tuple[str, Path]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ca").files("stream")


@pytest.fixture
def stream(tmp_path: Path, shm_directory: Path, files: TlsFiles) -> Iterator[Stream]:
    """Sync unit, provider and trainer, and a read-only node."""
    config = write_config(
        *(tmp_path, shm_directory),
        publish={"ads": {"folder": str(tmp_path / "published"), "seconds": 0.2}},
        counting={"count": 1, "command": [*COUNTING, str(tmp_path / "stream.yaml")]},
    )
    listen = f"127.0.0.1:{two_free_ports()}"
    serve = [*CLI, "serve", config, "ads", "--listen", listen, "--interval", "0.1"]
    with certified(files), contextlib.ExitStack() as ends:
        running = Running(config)
        ends.callback(running.kill)
        running.feed(range(50))  # the token is there
        log = tmp_path / "serve.log"
        with log.open("wb") as output:
            node = subprocess.Popen(serve, cwd=ROOT, stdout=output, stderr=output)
        ends.callback(node.wait)
        ends.callback(node.kill)
        logs = Path(running.settings.folder) / "processes"
        ports = {
            "provider": (running.settings.provider, logs / "provider.log"),
            "sync": (running.settings.sync, logs / "sync.log"),
            "node": (listen, log),
        }
        yield Stream(running, ports)


def test_all_of_a_stream_goes_through_tls(stream: Stream, tmp_path: Path, files: TlsFiles):
    running = stream.running
    until(lambda: bool(running.counts(50).sum() == 50))
    token = running.settings.token
    node = RemoteReader(stream.ports["node"][0], token, "test")
    until(lambda: bool(node.read({"item": np.arange(50)}).rows["item"].sum() == 50))
    node.close()

    handshake = token.encode() + Handshake(Purpose.CALLS, "plain").text().encode().ljust(1024)
    for address, log in stream.ports.values():
        for said in (handshake, b"garbage " * 250):
            _assert_refused(address, log, said)
        with pytest.MonkeyPatch.context() as patched:
            for name in ("CERT", "KEY", "CA"):
                patched.delenv(f"TFHYBRID_TLS_{name}")
            plain = Remote(address, token, "plain", "stream", patience=0.2)
            with pytest.raises(StreamError, match=r"The stream at .* has not answered"):
                plain.call(SyncUnit.stats)
        other = Authority(tmp_path / f"ca-{log.stem}").files("stranger")
        with certified(other):
            stranger = Remote(address, token, "stranger", "stream", patience=0.2)
            with pytest.raises(StreamError, match="certificate"):
                stranger.call(SyncUnit.stats)

    # Whoever loses its relay comes back: here the sync unit, which is started again.
    pid = running.processes()["sync"]["pid"]
    (relay,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(relay), signal.SIGKILL)
    until(lambda: running.processes()["sync"]["pid"] not in (pid, None))
    running.feed(range(50, 100))
    until(lambda: bool(running.counts(100).sum() == 100), seconds=120)
    np.testing.assert_array_equal(running.counts(100), np.ones(100))


def _assert_refused(address: str, log: Path, said: bytes) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        mine = link.getsockname()[1]
        link.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            while link.recv(100):  # an alert, perhaps
                pass
    text = f"from 127.0.0.1 port {mine} is closed: it does not speak TLS"
    until(lambda: text in log.read_text())
