"""Starts nodes and the source of samples, on hosts of their own or all on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.roles.roles.workload import Workload
from benchmarks.stream.stream.site import free_ports
from benchmarks.support import launch
from benchmarks.support.launch import ROOT
from tests.support import hosts as several
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster, Role
from tfhybrid.errors import StoreError

TRAINERS = 2
EMBEDDING = 2
TIMEOUT_SECONDS = 900
_STARTED_SECONDS = 300
_HOSTS = {
    "h1": "trainer",
    "h2": "trainer",
    "h3": "source",
    "h4": "data",
    "h5": "owner",
    "h6": "owner",
}


@dataclasses.dataclass
class Site:
    """Where processes run: hosts, or this machine.

    Args:
        folder: For files of the run.
        hosts: Network namespaces; `None`: this machine.
    """

    folder: Path
    hosts: several.Hosts | None

    def address(self, name: str) -> str:
        """Returns the address of a host."""
        return "127.0.0.1" if self.hosts is None else self.hosts.address(name)

    def role_of_address(self) -> dict[str, str]:
        """Returns the role of each host's address; empty on one machine."""
        return {} if self.hosts is None else {self.address(name): _HOSTS[name] for name in _HOSTS}

    @contextlib.contextmanager
    def process(self, host: str, *command: str) -> Iterator[Path]:
        """Runs Python on a host meanwhile, and yields the file of what it writes."""
        log = self.folder / f"{len(list(self.folder.iterdir()))}.log"
        enter = [] if self.hosts is None else self.hosts.enter(host)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*enter, sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=out,
            )
            try:
                yield log
            finally:
                process.kill()
                process.wait()

    def train(self, options: Sequence[str]) -> dict[str, object]:
        """Runs the trainers, and returns their result.

        Raises:
            SideFailedError: They failed.
        """
        module = "benchmarks.roles.roles.train"
        if self.hosts is None:
            return launch.run_side(module, [*options], TRAINERS, timeout=TIMEOUT_SECONDS)
        slots = dict.fromkeys(self.hosts.names[:TRAINERS], 1)
        try:
            told = self.hosts.horovodrun(slots, "-m", module, *options, timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise launch.SideFailedError(f"not ended within {TIMEOUT_SECONDS} s.") from error
        except AssertionError as error:
            raise launch.SideFailedError(launch.tail(str(error))) from error
        return launch.result_in(told)


@contextlib.contextmanager
def site(rate: str) -> Iterator[Site]:
    """Yields a place for one run.

    Args:
        rate: Of the link of each of six hosts, as tc has it; empty: processes of this machine.
    """
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        if rate:
            hosts = held.enter_context(several.hosts(len(_HOSTS)))
            hosts.limit(rate)
            yield Site(folder, hosts)
            return
        memory = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-benchmark-")
        held.enter_context(_environment({"TFHYBRID_SHM_DIR": held.enter_context(memory)}))
        yield Site(folder, None)


@contextlib.contextmanager
def source_of(place: Site, workload: Workload) -> Iterator[str]:
    """Serves the samples of all ranks, and yields HOST:PORT."""
    address = f"{place.address('h3')}:{free_ports(1)[0]}"
    fields = json.dumps(dataclasses.asdict(workload))
    command = ("-m", "benchmarks.roles.roles.source", address, str(TRAINERS), fields)
    with place.process("h3", *command) as log:
        _wait(lambda: "ready" in log.read_text(), log)
        yield address


@contextlib.contextmanager
def nodes(place: Site, script: str = "benchmarks.roles.roles.workload") -> Iterator[None]:
    """Runs a metadata node, embedding nodes and a data node, to which jobs connect meanwhile.

    Args:
        place: Where.
        script: The module that the data node reads data sets of.
    """
    port, status_port = free_ports(2)
    token = place.folder / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0o600)
    owners = [f"embedding-{number}" for number in range(EMBEDDING)]
    metadata = f"{place.address('h3')}:{port}"
    with contextlib.ExitStack() as running:

        def start(host: str, *command: str) -> Path:
            listen = ("--token-file", str(token), "--listen", place.address(host))
            program = ("-m", "tfhybrid.cli", "node")
            return running.enter_context(place.process(host, *program, *command, *listen))

        state = str(place.folder / "state.json")
        ports = ("--port", str(port), "--status-port", str(status_port))
        log = start(
            "h3",
            "metadata",
            "--state",
            state,
            "--owners",
            ",".join(owners),
            *ports,
        )
        for name, host in zip(owners, ("h5", "h6"), strict=True):
            start(
                host,
                "embedding",
                "--name",
                name,
                "--metadata",
                metadata,
            )
        reads = ("--script", script, "--metadata", metadata)
        start("h4", "data", "--name", "data-0", *reads)
        roles = {"embedding": Role(EMBEDDING), "data": Role(1)}
        cluster = Cluster("local", place.folder, place.address("h3"), port, status_port, roles)
        _wait(lambda: _ready(cluster) == {*owners, "data-0"}, log)
        told = {"TFHYBRID_NODES": metadata, "TFHYBRID_NODES_TOKEN": str(token)}
        running.enter_context(_environment(told))
        yield


def _ready(cluster: Cluster) -> set[str]:
    try:
        found = launching.status(cluster)["nodes"]
    except StoreError:
        return set()
    return {each["name"] for each in found if each["state"] == "ready"}


def _wait(done: object, log: Path) -> None:
    assert callable(done)
    deadline = time.monotonic() + _STARTED_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise launch.SideFailedError(f"not ready: {launch.tail(log.read_text())}")
        time.sleep(0.05)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
