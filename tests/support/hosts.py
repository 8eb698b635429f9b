"""Several hosts on one machine: network namespaces with their own address, name, sshd and /dev/shm.

`horovodrun -H h1:2,h2:2` reaches them over ssh as on a cluster. Other file systems are common to
all of them, like a network file system. Needs root, iproute2, iptables, util-linux and an sshd.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of a user whose environment is active: he finds `tfhybrid` and `horovodrun`.
ACTIVE = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
}
SSHD = "/usr/sbin/sshd"
_STARTED_SECONDS = 60
_OWN_MOUNTS = ("unshare", "--mount", "--uts", "bash", "-c")


def missing() -> str | None:
    """Returns why there can be no hosts here, or `None`."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root makes"
    tools = ("ip", "tc", "iptables", "nsenter", "unshare", "ssh", SSHD)
    absent = [tool for tool in tools if not shutil.which(tool)]
    return f"missing: {', '.join(absent)}" if absent else None


class Hosts:
    """Hosts `h1`, `h2`, ... on a bridge.

    Args:
        count: Number of hosts.
        folder: An empty folder for their files.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self._id = f"t{secrets.token_hex(3)}"
        self._folder = folder
        # Of 16,384, so that two runs at a time have different ones.
        self._net = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self._sshds: dict[str, subprocess.Popen[bytes]] = {}
        self._cut: set[str] = set()
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key"))
        addresses = "".join(f"{self.address(name)} {name}\n" for name in self.names)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}")
        try:
            self._make_bridge()
            for name in self.names:
                self._make(name)
        except BaseException:
            self.remove()
            raise

    def address(self, name: str) -> str:
        """Returns a host's address."""
        return f"{self._net}.{self.names.index(name) + 1}"

    @property
    def gateway(self) -> str:
        """The address of this machine, as hosts see it."""
        return f"{self._net}.254"

    @property
    def key(self) -> Path:
        """The key by which hosts let ssh in."""
        return self._folder / "key"

    def enter(self, name: str) -> list[str]:
        """Returns what goes in front of a command to run it on a host."""
        target = str(self._sshds[name].pid)
        enter = ["nsenter", "--target", target, "--net", "--mount", "--uts", "--"]
        return [*enter, "env", f"--chdir={ROOT}"]  # a mount namespace begins at /

    def run(self, name: str, *command: str) -> str:
        """Runs a command on a host; returns what it wrote."""
        return _run(*self.enter(name), *command)

    def horovodrun(
        self,
        slots: dict[str, int],
        *command: str,
        timeout: float = 240,
        python: Path = Path(sys.executable),
    ) -> str:
        """Runs Python on so many ranks of each host, from the first; returns what they wrote.

        Raises:
            AssertionError: The job failed.
        """
        done = self.start(slots, *command, python=python)
        try:
            output, _ = done.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            done.kill()
            raise
        assert done.returncode == 0, output
        return output

    def start(
        self, slots: dict[str, int], *command: str, python: Path = Path(sys.executable)
    ) -> subprocess.Popen[str]:
        """Starts a job as `horovodrun` does, and returns its process.

        Args:
            slots: Ranks of each host.
            command: What follows `python`.
            python: The interpreter, with a `horovodrun` beside it.
        """
        where = ",".join(f"{name}:{ranks}" for name, ranks in slots.items())
        interface = "lo" if [*slots] == self.names[:1] else "eth0"
        horovodrun = [
            str(python.with_name("horovodrun")),
            *("--gloo", "--network-interface", interface, "-np", str(sum(slots.values()))),
            *("--ssh-identity-file", str(self.key), "-H", where),
        ]
        return subprocess.Popen(
            [*self.enter(self.names[0]), *horovodrun, str(python), *command],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def limit(self, rate: str) -> None:
        """Limits every host's link to a rate, such as "1gbit", in both directions.

        Receiving is limited too: several hosts that send to one would exceed its link.
        """
        # The burst holds what the kernel hands over in one tick, or the rate is not reached.
        bucket = ("root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms")
        for name in self.names:
            eth0 = ("-n", self._namespace(name), "qdisc", "replace", "dev", "eth0")
            _run("tc", *eth0, *bucket)
            _run("tc", "qdisc", "replace", "dev", self._port(name), *bucket)

    def link(self, name: str, up: bool) -> None:
        """Pulls a host's cable, or puts it back and returns once it carries."""
        _run("ip", "link", "set", self._port(name), "up" if up else "down")
        self._cut = self._cut - {name} if up else self._cut | {name}
        for other in self.names if up else ():
            if other not in {name, *self._cut}:  # both ways: each has its own opinion of the other
                self._await_ssh(name, other)
                self._await_ssh(other, name)

    def received(self, name: str) -> int:
        """Returns how many bytes have reached a host by its link."""
        interfaces = Path(f"/proc/{self._sshds[name].pid}/net/dev").read_text()
        _, _, counts = interfaces.partition("eth0:")
        return int(counts.split()[0])

    def impair(self, name: str, loss: float) -> None:
        """Loses this share of the packets that reach a host."""
        # Not by tc: few kernels have its netem.
        drop = ("-m", "statistic", "--mode", "random", "--probability", str(loss), "-j", "DROP")
        _run(*self.enter(name), "iptables", "-A", "INPUT", "-i", "eth0", *drop)

    def shrink(self, name: str, size: str) -> None:
        """Gives a host's shared memory another size, such as "64m"."""
        _run(*self.enter(name), "mount", "-o", f"remount,size={size}", "/dev/shm")

    def heal(self, name: str) -> None:
        """Loses no more packets."""
        _run(*self.enter(name), "iptables", "--flush", "INPUT")

    def stores(self, name: str) -> set[str]:
        """Returns the names of the stores in a host's shared memory."""
        shm = Path(f"/proc/{self._sshds[name].pid}/root/dev/shm")
        return {store.name for store in shm.glob("tfhybrid-*") if store.is_dir()}

    @contextlib.contextmanager
    def replaced(self, name: str, file: Path, other: Path) -> Iterator[None]:
        """On that host alone, shows another file or folder in place of one."""
        _run(*self.enter(name), "mount", "--bind", str(other), str(file))
        try:
            yield
        finally:
            _run(*self.enter(name), "umount", str(file))

    def remove(self) -> None:
        """Ends what runs on the hosts, and removes every trace."""
        for sshd in self._sshds.values():
            sshd.kill()
            sshd.wait()
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                for pid in _run("ip", "netns", "pids", self._namespace(name)).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
            _try("ip", "netns", "del", self._namespace(name))
            _try("ip", "link", "del", self._port(name))
        _try("ip", "link", "del", self._id)

    def _await_ssh(self, name: str, other: str) -> None:
        """Returns when a host reaches the sshd of another one."""
        connect = f"until (exec 3<>/dev/tcp/{self.address(other)}/22) 2>&-; do sleep 0.05; done"
        _run(*self.enter(name), "timeout", str(_STARTED_SECONDS), "bash", "-c", connect)

    def _namespace(self, name: str) -> str:
        return f"{self._id}-{name}"

    def _port(self, name: str) -> str:
        """Returns the bridge's end of a host's link."""
        return f"{self._id}{name}"

    def _make_bridge(self) -> None:
        _run("ip", "link", "add", self._id, "type", "bridge")
        _run("ip", "addr", "add", f"{self._net}.254/24", "dev", self._id)
        _run("ip", "link", "set", self._id, "up")

    def _make(self, name: str) -> None:
        namespace, link = self._namespace(name), self._port(name)
        _run("ip", "netns", "add", namespace)
        peer = ("type", "veth", "peer", "name", "eth0", "netns", namespace)
        _run("ip", "link", "add", link, *peer)
        _run("ip", "link", "set", link, "master", self._id, "up")
        _run("ip", "-n", namespace, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        for each in ("eth0", "lo"):
            _run("ip", "-n", namespace, "link", "set", each, "up")
        self._start_sshd(name)

    def _start_sshd(self, name: str) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        pid_file = self._folder / f"{name}.pid"
        options = {
            "PidFile": pid_file,
            "HostKey": self._folder / "host_key",
            "AuthorizedKeysFile": self._folder / "key.pub",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
        }
        sshd = " ".join([SSHD, "-D", "-f /dev/null", *(f"-o {k}={v}" for k, v in options.items())])
        script = (
            f"hostname {name} && mount -t tmpfs -o size=8g tmpfs /dev/shm && "
            f"mkdir -p ~/.ssh && mount -t tmpfs tmpfs ~/.ssh && "  # known hosts are these alone
            f"mount --bind {self._folder / 'hosts'} /etc/hosts && exec {sshd}"
        )
        with (self._folder / f"{name}.log").open("wb") as log:
            self._sshds[name] = subprocess.Popen(
                ["ip", "netns", "exec", self._namespace(name), *_OWN_MOUNTS, script],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _STARTED_SECONDS
        while not pid_file.exists() or not pid_file.read_text():
            assert self._sshds[name].poll() is None, (self._folder / f"{name}.log").read_text()
            assert time.monotonic() < deadline, f"the sshd of {name} does not start"
            time.sleep(0.05)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Yields hosts that are removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="tfhybrid-hosts-") as folder:
        made = Hosts(count, Path(folder))
        try:
            yield made
        finally:
            made.remove()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(
            done.returncode, command, done.stdout, done.stderr
        ) from RuntimeError(done.stderr)
    return done.stdout


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True)
