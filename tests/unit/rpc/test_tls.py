"""The row service with TLS: real certificates, sockets, relay processes and engines."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path

import numpy as np
import pytest

from tests.support.certificates.authority import Authority
from tests.support.certificates.plain_port import port_without_tls
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind, PlacementKind
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.errors import ConfigError, StoreError, TfhybridError
from tfhybrid.initializers import Uniform
from tfhybrid.job.row_service import Leader, RowService
from tfhybrid.rpc import listener
from tfhybrid.rpc.tls import Tls
from tfhybrid.rpc.tokens import new_token
from tfhybrid.settings import TlsFiles, tls_files

SILENCE = 10.0
DIM = 16
OWNER, READER = 0, 1
ROWS = np.random.default_rng(5).normal(size=(100_000, DIM)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Owner:
    address: tuple[str, int]
    token: str


Serve = Callable[[TlsFiles | None], Owner]
Read = Callable[..., Engine]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def good(authority: Authority) -> TlsFiles:
    return authority.files("h1")


@pytest.fixture
def cleanup() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def opened(directory: Path, host: int) -> Engine:
    engine = Engine([OWNER, READER], host)
    folder = directory / str(host)
    folder.mkdir(parents=True)
    engine.open_store(str(folder), "tls", 0, f"rank {host}", 7)
    placement = (PlacementKind.WHOLE, OWNER)
    engine.open_table(OpenedTable("item", DIM, Uniform().native, placement=placement))
    engine.set_optimizer("item", kind=OptimizerKind.SGD)
    return engine


@pytest.fixture
def serve(cleanup: contextlib.ExitStack, tmp_path: Path) -> Serve:
    """Starts an owner."""

    def serve(files: TlsFiles | None) -> Owner:
        engine, token = opened(tmp_path, OWNER), new_token()
        cleanup.callback(engine.close_store)
        writer = TableWriter(engine, "item", DIM, (0, DIM), None)
        writer.write_rows(RowBlock(np.arange(len(ROWS)), ROWS, None))
        listener_socket = listener.listen("127.0.0.1")
        tls = None if files is None else Tls(files)
        service = RowService(engine, OWNER, listener_socket, token, SILENCE, tls)
        service.start([Leader(None, "rank 0"), Leader(None, "rank 1")])
        cleanup.callback(service.stop)
        return Owner(listener_socket.getsockname()[:2], token)

    return serve


@pytest.fixture
def read(cleanup: contextlib.ExitStack, tmp_path: Path) -> Read:
    """Connects a reader to an owner; returns its engine."""

    number = itertools.count()

    def read(owner: Owner, files: TlsFiles | None, see: Callable[[Tls], None] = id) -> Engine:
        engine = opened(tmp_path / str(next(number)), READER)
        cleanup.callback(engine.close_store)
        tls = None if files is None else Tls(files)
        if tls is not None:
            see(tls)
        service = RowService(engine, READER, None, owner.token, SILENCE, tls)
        service.start([Leader(owner.address, "rank 0 on h1"), Leader(None, "rank 1")])
        cleanup.callback(service.stop)
        service.connect()
        return engine

    return read


def rows(engine: Engine, count: int) -> np.ndarray:
    return engine.lookup("item", DIM, np.arange(count))


def wait_for(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Returns when a relay has logged it, which it does by itself."""
    written, deadline = "", time.monotonic() + 30
    while text not in written:
        assert time.monotonic() < deadline, written
        written += capfd.readouterr().err
        time.sleep(0.01)


def refusal(read: Read, owner: Owner, files: TlsFiles | None) -> str:
    with pytest.raises(StoreError, match="Cannot connect to rank 0 on h1") as refused:
        read(owner, files)
    return str(refused.value)


def test_rows_come_as_the_owner_has_them(
    serve: Serve, read: Read, authority: Authority, good: TlsFiles
) -> None:
    owner = serve(good)
    reader = read(owner, authority.files("h2"))
    many = rows(reader, len(ROWS))  # 6.4 MB, some hundred TLS records
    assert many.tobytes() == ROWS.tobytes()
    assert rows(reader, 3).tobytes() == ROWS[:3].tobytes()


def test_the_token_does_not_travel_readably(serve: Serve, good: TlsFiles) -> None:
    owner, tls, seen = serve(good), Tls(good), []

    def record(link: socket.socket) -> socket.socket:
        """Puts a relay that keeps what it sees between a link and TLS."""
        ours, its = socket.socketpair()

        def carry(source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65536):
                seen.append(data)
                target.sendall(data)

        for ends in ((its, link), (link, its)):
            threading.Thread(target=carry, args=ends, daemon=True).start()
        return tls.dial(ours, "rank 0")

    with listener.dial(owner.address, owner.token, "[1, 0]", 5, SILENCE, record):
        tls.close()
    assert len(seen) >= 4
    assert owner.token.encode() not in b"".join(seen)


def test_a_certificate_of_another_ca_is_refused_by_both(
    serve: Serve,
    read: Read,
    authority: Authority,
    good: TlsFiles,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    other = Authority(tmp_path / "other").files("h2")
    owner = serve(good)
    assert "its certificate is refused: " in refusal(read, owner, other)
    # It believes the owner, which does not believe it.
    assert "it refuses our certificate: " in refusal(
        read, owner, dataclasses.replace(other, ca=authority.ca)
    )
    wait_for("A connection from 127.0.0.1 port", capfd)


def test_an_expired_certificate_is_named(
    serve: Serve, read: Read, authority: Authority, good: TlsFiles
) -> None:
    expired = authority.files("h3", "20200101000000Z", "20200102000000Z")
    owner = serve(good)
    assert "it refuses our certificate: " in refusal(read, owner, expired)
    assert "expired" in refusal(read, owner, expired)


def test_a_peer_sees_that_the_owners_has_expired(
    serve: Serve, read: Read, authority: Authority, good: TlsFiles
) -> None:
    expired = authority.files("h4", "20200101000000Z", "20200102000000Z")
    assert "certificate has expired" in refusal(read, serve(expired), good)


def test_who_does_not_speak_tls_is_turned_away_and_named(
    serve: Serve, read: Read, good: TlsFiles, capfd: pytest.CaptureFixture[str]
) -> None:
    owner = serve(good)
    with listener.dial(owner.address, owner.token, "[1, 0]", 5, SILENCE) as stranger:
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(100):  # an alert, perhaps
                pass
        name = f"127.0.0.1 port {stranger.getsockname()[1]}"
    wait_for(f"A connection from {name} is closed: it does not speak TLS", capfd)
    assert rows(read(owner, good), 3).shape == (3, DIM)  # others come in


def test_a_port_without_tls_is_named(read: Read, good: TlsFiles) -> None:
    with port_without_tls() as address:
        owner = Owner(address, "token")
        assert "it does not speak TLS" in refusal(read, owner, good)


def test_the_relay_ends_with_a_rank_that_was_killed(good: TlsFiles) -> None:
    script = (
        "import sys; from tfhybrid.rpc.tls import Tls, TlsFiles;"
        "tls = Tls(TlsFiles(*sys.argv[1:]));"
        "print(tls._process.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, *dataclasses.astuple(good)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout is not None
        relay = int(rank.stdout.readline())
        watched = os.pidfd_open(relay)
        rank.kill()
    assert connection.wait([watched], 30)
    os.close(watched)


def test_reads_fail_when_the_relay_was_killed(serve: Serve, read: Read, good: TlsFiles) -> None:
    made: list[Tls] = []
    reader = read(serve(good), good, made.append)
    made[0]._process.kill()
    made[0]._process.wait()
    with pytest.raises(TfhybridError, match="The connection to rank 0 on h1 is lost"):
        rows(reader, 3)


def test_a_forked_child_does_not_keep_the_relay(good: TlsFiles) -> None:
    tls = Tls(good)
    watched = os.pidfd_open(tls._process.pid)
    child = os.fork()
    if child == 0:
        tls.abandon()
        signal.pause()
    tls.close()
    assert connection.wait([watched], 30)
    os.close(watched)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_files_are_given_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls_files() is None
    monkeypatch.setenv("TFHYBRID_TLS_CERT", "a")
    with pytest.raises(
        ConfigError, match=r"must be set together. Received: .*'TFHYBRID_TLS_CERT': 'a'"
    ):
        tls_files()
    monkeypatch.setenv("TFHYBRID_TLS_KEY", "b")
    monkeypatch.setenv("TFHYBRID_TLS_CA", "c")
    assert tls_files() == TlsFiles("a", "b", "c")
    with pytest.raises(ConfigError, match=r"PEM files.*cert='a'.*No such file"):
        Tls(TlsFiles("a", "b", "c"))
