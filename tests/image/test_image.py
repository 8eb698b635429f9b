"""The image for CPUs, as scripts/image built it: on one host, and on two (network namespaces).

Docker gives a container processes, users and a name of its own as well; none of that is relied on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.image.containers import CONFINED, ENTRYPOINT, IMAGE, NO_CAPABILITIES, UID
from tests.support import hosts as several
from tests.support.environment import answer
from tests.support.hosts import ROOT, Hosts
from tfhybrid._horovod import VERSION as HOROVOD

pytestmark = pytest.mark.timeout(600)


def in_image(*command: str, options: tuple[str, ...] = ()) -> str:
    """Runs a command in a container of this host; returns what it wrote."""
    name = ("--hostname", "localhost")
    done = subprocess.run(
        [IMAGE, "run", "tests", *name, *options, "--", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def _containers() -> Iterator[None]:
    yield
    for name in ("tests", "h1", "h2"):
        subprocess.run([IMAGE, "remove", name], stderr=subprocess.DEVNULL, check=False)


def test_it_holds_what_is_pinned_and_its_user_is_not_root() -> None:
    code = (
        "import json, os, shutil; from importlib import metadata as m; "
        "print(json.dumps([os.getuid(), shutil.which('gcc'), "
        "{d.name: d.version for d in m.distributions()}]))"
    )
    uid, compiler, found = json.loads(in_image("python", "-c", code))
    assert (uid, compiler) == (UID, None)
    installed = {normalized(name): version for name, version in found.items()}
    lines = answer("pins_for $(default_release)").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    pinned = {normalized(name): version for name, version in pins.items()}
    assert installed.pop("tfhybrid")
    assert installed.pop("horovod") == HOROVOD
    assert installed.pop("tensorflow-cpu") == pinned["tensorflow"]
    assert installed.pop("pip")  # Debian's
    assert installed == {name: pinned[name] for name in installed}


def normalized(name: str) -> str:
    """Returns a package's name as PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_doctor_finds_nothing_wrong() -> None:
    (found,) = json.loads(in_image("tfhybrid", "doctor", "--json")).values()
    assert [each for each in found if each["level"] in ("warning", "error")] == []


def test_the_demo_trains() -> None:
    data = Path(os.environ.get("TFHYBRID_DATA", ROOT.parent / "shared" / "data"))
    mounted = ("--volume", f"{data}:/data:ro", "--env", "TFHYBRID_DATA=/data")
    written = in_image(
        *(*ENTRYPOINT, "horovodrun", "-np", "2", "python", "examples/demo.py"),
        options=mounted if data.is_dir() else (),
    )
    assert "DeepFM on 2 ranks" in written
    assert float(re.search(r"test AUC\s*│\s*([\d.]+)", written)[1]) > 0.7
    assert "tfhybrid, one copy, 2 processes" in written
    assert "Run next:  horovodrun -np 2 tfhybrid train demo-output/model.yaml" in written


def test_the_project_of_the_installed_package_trains() -> None:
    steps = (
        "cd $(mktemp -d) && tfhybrid new ads >&2 && cd ads && "
        "python data/make.py --rows 20000 >&2 && exec ./check"
    )
    written = in_image(*ENTRYPOINT, "bash", "-c", steps)
    assert float(re.search(r", auc ([\d.]+)", written)[1]) > 0.7


class Containers:
    """A container on each of several hosts; all share the keys by which they let each other in."""

    def __init__(self, hosts: Hosts, keys: Path) -> None:
        self.hosts = hosts.names
        self._enter = hosts.enter
        self._keys = keys

    def command(self, host: str, *command: str) -> list[str]:
        """Returns a command line that runs a command in a host's container."""
        keys = ("--volume", f"{self._keys}:/home/tfhybrid/.ssh")
        options = ("--hostname", host, *keys, *NO_CAPABILITIES)
        return [*self._enter(host), IMAGE, "run", host, *options, "--", *command]

    def wait_until_healthy(self, host: str) -> None:
        """Waits as the image's health check does."""
        check = self.command(host, "bash", "-c", ": </dev/tcp/127.0.0.1/2222")
        end = time.monotonic() + 60
        while subprocess.run(check, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            assert time.monotonic() < end, f"{host} is not healthy"
            time.sleep(1)


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    """Two hosts, whose containers run what the image runs by default."""
    keys = tmp_path / "ssh"
    keys.mkdir(mode=0o700)
    os.chown(keys, UID, UID)
    with several.hosts(2) as hosts, ExitStack() as stack:
        made = Containers(hosts, keys)
        for host in made.hosts:
            sshd = subprocess.Popen(made.command(host, *CONFINED, *ENTRYPOINT, "sshd"))
            stack.enter_context(sshd)
            stack.callback(sshd.terminate)
        yield made


def test_containers_on_two_hosts_train_together(containers: Containers) -> None:
    for host in containers.hosts:
        containers.wait_until_healthy(host)
    # A host file as Kubernetes' MPI operator writes it.
    job = (
        "printf 'h1 slots=1\\nh2 slots=1\\n' >hostfile && "
        "ssh h2 grep -e CapEff -e NoNewPrivs /proc/self/status && "
        "exec horovodrun --gloo -np 2 --hostfile hostfile python examples/train_click_model.py"
    )
    command = containers.command("h1", "bash", "-c", job)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # What buildah itself needs stays in the bounding set, out of reach without new privileges.
    assert re.search(r"CapEff:\s*0{16}\nNoNewPrivs:\s*1\n", done.stdout)
    assert "2 rank(s) on 2 host(s)" in done.stderr + done.stdout
    assert float(re.search(r"test AUC ([\d.]+)", done.stdout)[1]) > 0.7


def test_containers_on_two_hosts_share_a_table(containers: Containers) -> None:
    """Their row services reach each other on free ports, as Horovod's do."""
    for host in containers.hosts:
        containers.wait_until_healthy(host)
    job = "exec horovodrun --gloo -np 2 -H h1:1,h2:1 python examples/larger_than_a_host.py sharded"
    command = containers.command("h1", "bash", "-c", job)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [int(count.replace(",", "")) for count in re.findall(r"has ([\d,]+) rows", done.stdout)]
    assert len(rows) == 2
    assert sum(rows) == 400_000
