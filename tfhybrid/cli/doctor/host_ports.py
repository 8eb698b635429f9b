"""Tests of whether hosts reach each other's free ports. Horovod and the row service use such ports.

    python -m tfhybrid.cli.doctor.host_ports listen             prints its port
    python -m tfhybrid.cli.doctor.host_ports dial HOST:PORT...  prints errors

The first ends at the end of its input. The second prints which ports it cannot reach, and why.
`tfhybrid doctor --hosts` runs both on all hosts, over ssh.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfhybrid.rpc.address import parsed_address

_DIAL_SECONDS = 5.0
_LISTEN_SECONDS = 60.0  # for the answer of the host that listens
_ANSWER_SECONDS = 60.0


def unreached(ssh: Sequence[str], hosts: Sequence[str]) -> dict[tuple[str, str], str]:
    """Returns the failed connections between hosts: (dialing host, listening host) -> reason.

    Args:
        ssh: Command line of ssh, up to the host's name.
        hosts: Names of the hosts to test. Hosts that do not answer within a minute are left out.

    Raises:
        OSError: ssh cannot be started.
    """
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(hosts)) as threads:
        ports = {}
        for host in hosts:
            port = stack.enter_context(_listening(ssh, host))
            if port is not None:
                ports[host] = port
        failures = threads.map(lambda host: _dialed(ssh, host, ports), ports)
        return {
            (host, other): why
            for host, reasons in zip(ports, failures, strict=True)
            for other, why in reasons.items()
        }


@contextlib.contextmanager
def _listening(ssh: Sequence[str], host: str) -> Iterator[int | None]:
    """Starts a listener on a host for the block; yields its port, or `None` without an answer."""
    with subprocess.Popen(
        [*ssh, host, _command("listen")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as remote:
        assert remote.stdout is not None
        assert remote.stdin is not None
        ending = threading.Timer(_LISTEN_SECONDS, remote.kill)
        ending.start()
        try:
            line = remote.stdout.readline().strip()
            yield int(line) if line.isdigit() else None
        finally:
            ending.cancel()
            with contextlib.suppress(BrokenPipeError):
                remote.stdin.close()


def _dialed(ssh: Sequence[str], host: str, ports: dict[str, int]) -> dict[str, str]:
    """Makes a host dial the others; returns the reason for each one that it cannot reach."""
    others = {other: f"{other}:{port}" for other, port in ports.items() if other != host}
    try:
        run = subprocess.run(
            [*ssh, host, _command("dial", *others.values())],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(others, f"it did not answer within {_ANSWER_SECONDS:.0f} s")
    try:
        return dict(json.loads(run.stdout))
    except ValueError:
        return {}


def _command(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "tfhybrid.cli.doctor.host_ports", *arguments])


def listen() -> None:
    """Listens on a free port, prints the port, and ends when standard input ends.

    `unreached` runs it over ssh on each host.
    """
    with socket.create_server(("", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()


def dial(addresses: Sequence[str]) -> None:
    """Connects to all addresses in parallel, and prints the failures as JSON: host -> reason.

    Args:
        addresses: Addresses, `HOST:PORT` each.
    """
    with ThreadPoolExecutor(max(1, len(addresses))) as threads:
        results = dict(zip(addresses, threads.map(_problem, addresses), strict=True))
    problems = {parsed_address(address)[0]: why for address, why in results.items() if why}
    sys.stdout.write(json.dumps(problems) + "\n")


def _problem(address: str) -> str:
    host, port = parsed_address(address)
    try:
        socket.create_connection((host, port), _DIAL_SECONDS).close()
    except OSError as error:
        return f"port {port}: {error}"
    return ""


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen()
    else:
        dial(sys.argv[2:])
