"""Strangers at a port with TLS: real connections without a certificate, and a real relay."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.certificates.authority import Authority
from tests.support.roles.clusters import until
from tfhybrid.rpc import listener, tls_relay
from tfhybrid.rpc.tls import Tls, accepted, dialled
from tfhybrid.settings import TlsFiles

DESCRIPTORS, STRANGERS = 120, 300
TOKEN = "a secret of the test"
SILENCE = 60.0


def serve(descriptors: int, files: TlsFiles) -> None:
    """Admits clients until one says "end", and writes the pid of the relay and each handshake."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    tls, link = Tls(files), listener.listen("127.0.0.1")
    sys.stdout.write(f"{link.getsockname()[1]} {tls._process.pid}\n")
    sys.stdout.flush()
    arrivals = listener.Listener(link, TOKEN, accepted(tls, SILENCE))
    while not tls.ended:
        for handshake, *_ in arrivals.arrivals(0.2):
            sys.stdout.write(f"{handshake}\n")
            sys.stdout.flush()
            if handshake == "end":
                return


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ca").files("h1")


@pytest.fixture
def tls(files: TlsFiles) -> Iterator[Tls]:
    with contextlib.closing(Tls(files)) as tls:
        yield tls


@dataclasses.dataclass(frozen=True)
class Served:
    process: subprocess.Popen[str]
    address: tuple[str, int]
    relay: int

    def admits(self, handshake: str, tls: Tls) -> bool:
        """Whether a client with a certificate is admitted."""
        with listener.dial(
            self.address, TOKEN, handshake, 30, SILENCE, dialled(tls, "the process")
        ):
            return self.process.stdout.readline() == f"{handshake}\n"

    def descriptors(self) -> int:
        """Number of the relay's open descriptors."""
        return len(os.listdir(f"/proc/{self.relay}/fd"))


@contextlib.contextmanager
def served(descriptors: int, files: TlsFiles) -> Iterator[Served]:
    module = ("-m", "tests.unit.rpc.test_tls_strangers")
    command = [sys.executable, *module, str(descriptors), *dataclasses.astuple(files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port, relay = map(int, process.stdout.readline().split())
        try:
            yield Served(process, ("127.0.0.1", port), relay)
        finally:
            process.kill()


def test_strangers_leave_a_relay_of_few_descriptors_some_for_a_client(
    files: TlsFiles, tls: Tls
) -> None:
    with contextlib.ExitStack() as held, served(DESCRIPTORS, files) as server:
        for _ in range(STRANGERS):
            held.enter_context(socket.create_connection(server.address, timeout=30))
        assert server.admits("a client", tls)
        held.close()
        assert server.admits("end", tls)
        assert server.process.wait(30) == 0


def test_handshakes_that_never_end_are_bounded(files: TlsFiles, tls: Tls) -> None:
    with contextlib.ExitStack() as held, served(4096, files) as server:
        strangers = [
            held.enter_context(socket.create_connection(server.address, timeout=30))
            for _ in range(STRANGERS)
        ]
        strangers[0].settimeout(20)  # less than a handshake may take
        assert strangers[0].recv(1) == b""  # a newer one has taken its place
        assert server.admits("a client", tls)
        until(lambda: server.descriptors() <= 2 * tls_relay.MAX_HANDSHAKES + 20)


def test_a_connection_for_which_there_are_no_descriptors_costs_only_itself(
    files: TlsFiles, tls: Tls
) -> None:
    with served(4096, files) as server:
        assert server.admits("a client", tls)
        soft, hard = resource.prlimit(server.relay, resource.RLIMIT_NOFILE)
        resource.prlimit(server.relay, resource.RLIMIT_NOFILE, (3, hard))
        with pytest.raises(OSError, match=r"(?i)closed|eof|reset"):
            server.admits("another client", tls)
        resource.prlimit(server.relay, resource.RLIMIT_NOFILE, (soft, hard))
        assert server.admits("a third client", tls)


def test_what_a_listener_dismisses_is_closed(tls: Tls) -> None:
    with listener.listen("127.0.0.1") as port, contextlib.ExitStack() as held:
        stranger = held.enter_context(socket.create_connection(port.getsockname(), timeout=20))
        link = accepted(tls, SILENCE)(port.accept()[0])
        link.close()
        assert stranger.recv(1) == b""  # long before the limit of a handshake, which is 30 s


def test_a_relay_that_cannot_go_on_ends(files: TlsFiles) -> None:
    """Otherwise it would keep its connections, take no others, and nobody would notice."""
    tls = Tls(files)
    with listener.listen("127.0.0.1") as port, contextlib.ExitStack() as held:
        held.enter_context(socket.create_connection(port.getsockname(), timeout=20))
        link = held.enter_context(accepted(tls, SILENCE)(port.accept()[0]))
        tls._control.send(b"no JSON")
        assert link.recv(1) == b""
        assert tls._process.wait(30) == 1
        assert tls.ended


def test_refusals_of_strangers_do_not_fill_a_log(caplog: pytest.LogCaptureFixture) -> None:
    refusals = tls_relay.BoundedLog(tls_relay._log)
    for number in range(1000):
        refusals.warn("Stranger %d is refused", number)
    assert caplog.messages == [f"Stranger {number} is refused" for number in range(20)]
    refusals._begun -= tls_relay._LINES_SECONDS
    refusals.warn("Stranger %s is refused", "again")
    assert caplog.messages[20:] == [
        "980 more lines like the last ones",
        "Stranger again is refused",
    ]


if __name__ == "__main__":
    serve(int(sys.argv[1]), TlsFiles(*sys.argv[2:]))
