"""Strangers at the port of metrics: those who hold connections, and those who never finish."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from tfhybrid.errors import ConfigError
from tfhybrid.monitoring import web_server
from tfhybrid.monitoring.metrics import STEPS, Metric
from tfhybrid.monitoring.prometheus import Endpoint
from tfhybrid.settings import TlsFiles

DESCRIPTORS = 150
STRANGERS = 400


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def is_closed(link: socket.socket) -> bool:
    """Whether the server closes the connection within the timeout of the socket."""
    try:
        return link.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint("job", lambda: [(STEPS, {"": 7.0})], 0)
    yield endpoint
    endpoint.close()


def test_strangers_who_hold_connections_cost_a_process_few_descriptors() -> None:
    command = [sys.executable, "-m", "tests.unit.monitoring.scraped_process", str(DESCRIPTORS)]
    with (
        contextlib.ExitStack() as held,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        port = int(process.stdout.readline())
        for _ in range(STRANGERS):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert "tfhybrid_steps_total 7.0" in scraped(port)
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < DESCRIPTORS
        process.stdin.write("save\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith("scraped_process.py\n")
        process.stdin.close()  # the server closes although the strangers stay
        assert process.wait(60) == 0


def test_a_request_that_never_ends_is_cut(endpoint, monkeypatch) -> None:
    """Bytes that keep coming do not prolong it."""
    monkeypatch.setattr(web_server, "_REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as link:
        link.settimeout(0.05)
        while not is_closed(link):
            with contextlib.suppress(ConnectionError):
                link.sendall(b"x")
    assert "tfhybrid_steps_total 7.0" in scraped(endpoint.port)


def test_the_newest_connections_are_kept(endpoint) -> None:
    with contextlib.ExitStack() as held:
        address = "127.0.0.1", endpoint.port
        links = [
            held.enter_context(socket.create_connection(address, timeout=30))
            for _ in range(web_server._MAX_WAITING + 1)
        ]
        assert links[0].recv(1) == b""
        links[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert links[-1].recv(8) == b"HTTP/1.0"


def test_only_this_host_is_served_unless_an_address_is_given(endpoint) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", endpoint.port), timeout=30)
    other = Endpoint("job", lambda: [], 0, "0.0.0.0")
    socket.create_connection(("127.0.0.2", other.port), timeout=30).close()
    other.close()
    with pytest.raises(ConfigError, match=rf"a free port\. Received: 127.0.0.1:{endpoint.port}"):
        Endpoint("job", lambda: [], endpoint.port)
    with pytest.raises(ConfigError, match=r"Received: 127.0.0.1:65536"):
        Endpoint("job", lambda: [], 65536)


def test_a_metric_may_have_several_labels() -> None:
    metric = Metric("node_ready", "gauge", "Ready.", ("node", "role"))
    endpoint = Endpoint("job", lambda: [(metric, {('a"b', "data"): 1.0})], 0)
    assert 'tfhybrid_node_ready{node="a\\"b",role="data"} 1.0' in scraped(endpoint.port)
    endpoint.close()


def test_a_certificate_that_is_missing_leaves_the_port_free(tmp_path, endpoint) -> None:
    address = "127.0.0.3", endpoint.port
    missing = TlsFiles(*[str(tmp_path / name) for name in ("cert", "key", "ca")])
    # `refused` holds the traceback, and so all that the server has opened.
    with pytest.raises(FileNotFoundError) as refused:
        web_server.WebServer(lambda *_: [], address, missing)
    web_server.WebServer(lambda *_: [], address).close()
    assert refused.value.errno == errno.ENOENT


def test_headers_without_end_are_refused(endpoint, monkeypatch) -> None:
    """A hundred lines of 64 KiB, which Python alone would keep."""
    monkeypatch.setattr(web_server, "_REQUEST_SECONDS", 1000.0)
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as link:
        answer = b""
        with contextlib.suppress(ConnectionError):  # the server closes before it has read all
            link.sendall(b"GET /metrics HTTP/1.0\r\n")
            for number in range(90):
                link.sendall(b"x-%d: " % number + b"x" * 60_000 + b"\r\n")
            answer = link.recv(100)
        assert answer == b"" or answer.startswith(b"HTTP/1.0 431")
    assert "tfhybrid_steps_total 7.0" in scraped(endpoint.port)
