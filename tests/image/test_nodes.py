"""The services of docker/nodes.yaml, from the image, each on a host (network namespace) of its own.

Hosts are known by the names of services, as in Compose's network, so the commands are the file's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

from examples import roles
from tests.image.containers import CONFINED, ENTRYPOINT, IMAGE, NO_CAPABILITIES, UID
from tests.support import hosts as several
from tests.support.hosts import ROOT, Hosts
from tests.support.roles.clusters import node, until
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.rpc.address import parsed_address

SERVICES = yaml.safe_load((ROOT / "docker" / "nodes.yaml").read_text())["services"]
TRAINER = "trainer"
NODES = [name for name in SERVICES if name != TRAINER]
CONTAINER = "nodes"  # its files are common to all hosts: a copy for each would take 10 GB
pytestmark = pytest.mark.timeout(600)


class Services:
    """The services, each on a host of its own.

    Args:
        hosts: As many hosts.
        folder: An empty folder for what containers see of this machine, and for logs.
    """

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts = hosts
        self._folder = folder
        self._host = dict(zip(SERVICES, hosts.names, strict=True))
        self._running: dict[str, subprocess.Popen] = {}
        lines = [f"{hosts.address(host)} {name}\n" for name, host in self._host.items()]
        (folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]))
        (folder / "token").write_text("a secret of the test")
        (folder / "token").chmod(0o444)  # root's, as Compose makes it
        for name, host in self._host.items():
            (folder / name).mkdir(mode=0o700)
            os.chown(folder / name, UID, UID)
            hosts.shrink(host, SERVICES[name]["shm_size"].removesuffix("b"))

    @property
    def cluster(self) -> Cluster:
        """The nodes, as who asks for their status knows them."""
        name, port = parsed_address(SERVICES[TRAINER]["environment"]["TFHYBRID_NODES"])
        return Cluster("local", self._folder, self._hosts.address(self._host[name]), port, 0, {})

    def start(self, name: str) -> subprocess.Popen:
        """Starts a service, and returns its process."""
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(self._service(name), stdout=log, stderr=log)
        self._running[name] = process
        return process

    def await_dependencies(self, name: str) -> None:
        """Waits until Compose would start a service."""
        for other, needed in SERVICES[name]["depends_on"].items():
            if needed["condition"] == "service_healthy":
                until(lambda other=other: self._is_healthy(other), seconds=120)
        self.check_all_run()

    def run(self, name: str, **environment: str) -> str:
        """Runs a service until it has ended; returns what it wrote."""
        command = self._service(name, **environment)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check_all_run(self) -> None:
        """Fails the test if a service that was started has ended."""
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} has ended:\n{self._log(name).read_text()}"

    def first_process(self, name: str) -> psutil.Process:
        """Returns the process to which Docker would send a container's signals."""
        processes = psutil.Process(self._running[name].pid).children(recursive=True)
        return next(process for process in processes if process.name() == ENTRYPOINT[0])

    def stop(self, name: str) -> int:
        """Ends a service as `docker stop` does; returns its exit status."""
        self.first_process(name).terminate()
        return self._running[name].wait(60)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _is_healthy(self, name: str) -> bool:
        self.check_all_run()
        kind, *check = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        command = self._in_container(name, *check)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _service(self, name: str, **environment: str) -> list[str]:
        """Returns a command line that runs a service's own command, as the image starts it."""
        command = shlex.split(SERVICES[name]["command"])
        return self._in_container(name, *ENTRYPOINT, *command, **environment)

    def _in_container(self, name: str, *command: str, **environment: str) -> list[str]:
        secrets = SERVICES[name]["secrets"]
        seen = {
            "hosts": "/etc/hosts:ro",
            name: "/home/tfhybrid/.sshd",  # each host has a key of its own
            **{secret: f"/run/secrets/{secret}:ro" for secret in secrets},
        }
        volumes = [f"--volume={self._folder / here}:{there}" for here, there in seen.items()]
        told = [f"--env={variable}={value}" for variable, value in environment.items()]
        options = (f"--hostname={name}", "--no-hosts", *NO_CAPABILITIES, *volumes, *told)
        enter = self._hosts.enter(self._host[name])
        return [*enter, IMAGE, "run", CONTAINER, *options, "--", *CONFINED, *command]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """All nodes, started; the trainer is not."""
    with ExitStack() as stack:
        remove = [IMAGE, "remove", CONTAINER]
        stack.callback(subprocess.run, remove, stderr=subprocess.DEVNULL, check=False)
        running = stack.enter_context(ExitStack())
        hosts = stack.enter_context(several.hosts(len(SERVICES)))  # ends all that runs on them
        made = Services(hosts, tmp_path)
        for name in NODES:
            running.enter_context(made.start(name))
        yield made


def result(output: str) -> str:
    """Returns the line that examples/roles.py has written."""
    (line,) = re.findall(r"loss .*; rows .*", output)
    return line


def status(process: psutil.Process) -> Mapping[str, list[str]]:
    """Returns what Linux says of a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: line.split()[1:] for line in lines}


def test_the_services_train_as_a_job_without_nodes_does(services: Services) -> None:
    """To the last bit, of batches that the data node has read."""
    services.await_dependencies(TRAINER)
    trained = services.run(TRAINER, **SERVICES[TRAINER]["environment"])
    steps = roles.EPOCHS * (roles.SAMPLES // roles.BATCH) + roles.SAMPLES // 4 // roles.BATCH
    until(lambda: node(services.cluster, "data-0")["numbers"]["batches"] >= 2 * steps)
    services.check_all_run()
    for name in NODES:
        found = status(services.first_process(name))
        assert {*found["Uid"]} == {str(UID)}
        assert (int(found["CapEff"][0], 16), found["NoNewPrivs"]) == (0, ["1"])
    assert {name: services.stop(name) for name in reversed(NODES)} == dict.fromkeys(NODES, 0)
    assert result(trained) == result(services.run(TRAINER))
