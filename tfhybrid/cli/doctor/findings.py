"""Checks of a machine, to find problems before a job fails on it.

Each function checks one thing and returns a finding. TensorFlow and Horovod are imported only in
child processes, because a broken installation would crash the doctor.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path

from rich.filesize import decimal

from tfhybrid import _horovod
from tfhybrid._version import __version__
from tfhybrid.cli.doctor import disk_speed
from tfhybrid.ops._abi import built_releases
from tfhybrid.settings import environment_of_child, shm_directory, uses_legacy_keras

_SECONDS = 120  # limit for importing TensorFlow
# Docker's default is 64 MB, too little for any table.
_LEAST_SHM = 1 << 30
_LEAST_FILES = 4096
_LEAST_READS = 10_000  # reads per second, of a disk for tables in files
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "lustre", "fuse.")
_LEAST_MAPS = 65530  # Linux's default
_HOROVOD = """
import json, horovod, horovod.tensorflow as hvd
built = [n for n in ("gloo", "mpi", "nccl") if getattr(hvd, f"{n}_built")()]
print(json.dumps([built, horovod.__version__]))
"""
_GPUS = """
import json, tensorflow as tf, horovod.tensorflow as hvd
seen = len(tf.config.list_physical_devices("GPU"))
print(json.dumps([seen, bool(hvd.cuda_built() or hvd.rocm_built()), tf.__version__]))
"""
# The last release of TensorFlow that Horovod can be built for GPUs with: docs/versions.md.
_LAST_WITH_GPUS = (2, 18)
_ABI = "from tfhybrid.ops._abi import find_library; find_library()"


class Level(enum.StrEnum):
    """Severity of a finding."""

    GOOD = "good"
    NOTE = "note"  # information
    WARNING = "warning"  # some jobs will fail or be slow
    ERROR = "error"  # no job can run


@dataclasses.dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes:
        what: Name of the thing that was checked.
        state: State of the thing, for people.
        level: Severity.
        mend: Advice how to fix the problem, or a remark; empty if all is well.
    """

    what: str
    state: str
    level: Level = Level.GOOD
    mend: str = ""

    def as_json(self) -> dict[str, str]:
        """Returns the finding as JSON fields: `what`, `found` (the state), `level` and `mend`."""
        return {
            "what": self.what,
            "found": self.state,
            "level": self.level.value,
            "mend": self.mend,
        }


def find_all(around: Callable[[str], AbstractContextManager[None]]) -> Iterator[Finding]:
    """Runs all checks, and yields each finding as soon as it is known.

    Args:
        around: Function that is called with the name of each check, such as "shared memory". It
            returns the context in which the check runs.
    """
    for check in CHECKS:
        with around(_LONG.get(check, check.__name__.replace("_", " "))):
            finding = check()
        yield finding


def versions() -> Finding:
    """Returns a finding that tells the versions of Python and tfhybrid."""
    return Finding("tfhybrid", f"{__version__}, Python {platform.python_version()}")


def tensorflow() -> Finding:
    """Checks that the ops were built for the installed TensorFlow."""
    installed = _installed("tensorflow") or _installed("tensorflow-cpu")
    built = built_releases()
    state = f"{installed}, ops built for {', '.join(built) or None}"
    release = f"pip install 'tensorflow=={built[-1]}'" if built else "pip install tensorflow"
    if installed is None:
        return Finding("TensorFlow", "not installed", Level.ERROR, release)
    problem = _problem_of(_ABI)
    if problem is None:
        return Finding("TensorFlow", state)
    rebuild = "pip install --force-reinstall --no-deps tfhybrid, which rebuilds the ops"
    mend = release if built and built[-1].endswith("*") else rebuild
    return Finding("TensorFlow", f"{state}: {problem}", Level.ERROR, mend)


def keras() -> Finding:
    """Checks that Keras is installed, and tells which release `tf.keras` is."""
    version = _installed("keras")
    if not uses_legacy_keras():
        mend = "" if version else "pip install keras"
        level = Level.GOOD if version else Level.ERROR
        return Finding("Keras", version or "not installed", level, mend)
    legacy = _installed("tf_keras")
    if legacy is None:
        mend = "pip install tf_keras in TensorFlow's release"
        return Finding("Keras", "TF_USE_LEGACY_KERAS=1 without tf_keras", Level.ERROR, mend)
    mend = "build models and optimizers with tf.keras, not with `import keras`"
    return Finding("Keras", f"{legacy} as tf.keras, beside {version}", Level.NOTE, mend)


def horovod() -> Finding:
    """Checks that Horovod can be imported, has Gloo and was built for tfhybrid."""
    version = _installed("horovod")
    if version is None:
        return Finding("Horovod", "not installed", Level.ERROR, _horovod.INSTALL)
    run = _python(_HOROVOD)
    if run.returncode != 0:
        state = f"{version}: {_last_line(run.stderr)}"
        return Finding("Horovod", state, Level.ERROR, _horovod.INSTALL)
    features, of_files = json.loads(run.stdout.splitlines()[-1])
    foreign = _horovod.foreign(of_files)
    state = f"{foreign or version}, built with {', '.join(features) or 'nothing'}"
    if "gloo" not in features:
        mend = f"horovodrun --gloo needs it: {_horovod.INSTALL}"
        return Finding("Horovod", state, Level.WARNING, mend)
    if foreign:
        mend = f"it was never tested; pip uninstall horovod, then {_horovod.INSTALL}"
        return Finding("Horovod", state, Level.WARNING, mend)
    return Finding("Horovod", state)


def shared_memory(directory: str | None = None) -> Finding:
    """Checks that the shared-memory directory is a writable tmpfs with room for tables.

    Args:
        directory: Directory to check. Defaults to the store's directory.
    """
    from tfhybrid.core import native

    path = directory or shm_directory()
    what = f"store {path}"
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(
            what,
            "cannot be written",
            Level.ERROR,
            "set TFHYBRID_SHM_DIR to a tmpfs that can be written",
        )
    kind, size = _file_system(path), shutil.disk_usage(path)
    free = native.available_bytes(path)
    state = f"{kind}, {decimal(size.total)}, {decimal(free)} of it free for tables"
    if kind not in ("tmpfs", "hugetlbfs"):
        mend = "set TFHYBRID_SHM_DIR to a tmpfs: elsewhere tables are written to a disk"
        return Finding(what, state, Level.WARNING, mend)
    if size.total < _LEAST_SHM:
        mend = "docker run --shm-size=16g, or mount -o remount,size=16g /dev/shm; in Kubernetes an "
        return Finding(what, state, Level.ERROR, f"{mend}emptyDir with medium: Memory there")
    return Finding(what, state)


def disk(directory: str) -> Finding:
    """Measures the random reads of a disk for tables in files, with a temporary file there.

    Args:
        directory: Directory on the disk.
    """
    what = f"files {directory}"
    if not os.access(directory, os.W_OK | os.X_OK):
        mend = "FileTier(path) needs an existing directory that can be written, on every host"
        return Finding(what, "cannot be written", Level.ERROR, mend)
    kind, free = _file_system(directory), shutil.disk_usage(directory).free
    try:
        speed = disk_speed.measure(directory)
    except OSError as error:
        return Finding(what, f"{kind}: {error}", Level.ERROR, "tables in files need this disk")
    state = f"{kind}, {decimal(free)} free, {speed.reads:,.0f} reads of 4 KiB a second"
    if kind in ("tmpfs", "ramfs"):
        return Finding(what, state, Level.WARNING, "this is memory: use a directory on a disk")
    if kind.startswith(_NETWORK_FILE_SYSTEMS):
        return Finding(what, state, Level.WARNING, "use a directory on a disk of this host")
    if not speed.direct:
        state += ", some from the page cache"
    if speed.reads < _LEAST_READS:
        mend = "steps wait for their rows: an NVMe disk reads 100,000 times a second or more"
        return Finding(what, state, Level.WARNING, mend)
    return Finding(what, state)


def huge_pages() -> Finding:
    """Checks that large tables use huge pages."""
    path = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    setting = _chosen(path.read_text()) if path.exists() else "unknown"
    kernel = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    state = f"{setting} for shared memory, Linux {platform.release()}"
    if kernel >= (6, 1) or setting in ("always", "within_size", "advise", "force"):
        return Finding("huge pages", state)
    mend = f"echo advise > {path}: lookups in tables of several GB then have fewer TLB misses"
    return Finding("huge pages", state, Level.NOTE, mend)


def memory_limit() -> Finding:
    """Returns the container's memory limit, which includes shared memory."""
    for path in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        text = Path(path).read_text().strip() if Path(path).exists() else "max"
        if text.isdigit() and int(text) < 1 << 60:
            return Finding("memory limit", f"{decimal(int(text))}, from {path}; includes tables")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Finding("memory limit", f"none; the machine has {decimal(total)}")


def remove_ipc() -> Finding:
    """Checks whether logind removes a user's shared memory at logout."""
    if os.geteuid() < 1000 or not Path("/run/systemd/seats").exists():
        return Finding("logind", "does not remove this user's shared memory")
    directory = Path("/etc/systemd")
    files = [directory / "logind.conf", *directory.glob("logind.conf.d/*.conf")]
    text = "\n".join(file.read_text() for file in files if file.exists())
    if re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", text, re.MULTILINE)[-1:] == ["no"]:
        return Finding("logind", "RemoveIPC=no")
    mend = "RemoveIPC=no in /etc/systemd/logind.conf, or loginctl enable-linger"
    state = "RemoveIPC=yes: tables vanish when the user's last session ends"
    return Finding("logind", state, Level.WARNING, mend)


def limits() -> Finding:
    """Checks the limits of open files and mappings, which large tables and many ranks can reach."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    path = Path("/proc/sys/vm/max_map_count")
    maps = int(path.read_text()) if path.exists() else _LEAST_MAPS
    state = f"{files} open files, {maps} mappings"
    if files < _LEAST_FILES:
        mend = f"ulimit -n {_LEAST_FILES}: each chunk of a table is an open file"
        return Finding("limits", state, Level.WARNING, mend)
    if maps < _LEAST_MAPS:
        return Finding("limits", state, Level.WARNING, f"sysctl vm.max_map_count={_LEAST_MAPS}")
    return Finding("limits", state)


def processors(info: str = "/proc/cpuinfo") -> Finding:
    """Counts cores and NUMA nodes, and checks that the processor has AVX.

    Args:
        info: File in which the kernel lists the features of each core. Default: that of this host.
    """
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    cores = len(os.sched_getaffinity(0))
    state = f"{cores} cores for this process, {nodes} NUMA node(s)"
    if "avx" in Path(info).read_text().split():
        return Finding("processors", state)
    mend = "use another machine: TensorFlow and Horovod of wheels need AVX"
    return Finding("processors", f"{state}, without AVX", Level.ERROR, mend)


def interfaces() -> Finding:
    """Lists the network interfaces, and checks that this host's name resolves."""
    links = []
    for _, name in socket.if_nameindex():
        folder = Path("/sys/class/net") / name
        state = (folder / "operstate").read_text().strip() if folder.exists() else "unknown"
        if name != "lo" and state in ("up", "unknown"):
            links.append(f"{name}{_speed(folder / 'speed')}")
    host = socket.gethostname()
    state = f"{', '.join(links) or 'none but lo'}; this host is {host}"
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        mend = f"add a line `127.0.0.1 {host}` to /etc/hosts: Horovod looks it up"
        return Finding("network", f"{state}, which does not resolve", Level.ERROR, mend)
    return Finding("network", state)


def gpus() -> Finding:
    """Lists the GPUs, and checks that both TensorFlow and Horovod can use them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("GPUs", "none (no nvidia-smi)", Level.NOTE, "tables are for CPUs anyway")
    run = _run([tool, "--query-gpu=name,memory.total", "--format=csv,noheader"])
    state = "; ".join(run.stdout.strip().splitlines()) or _last_line(run.stderr)
    if run.returncode != 0:
        return Finding("GPUs", state, Level.WARNING, "nvidia-smi must list them")
    # If this fails, the findings about TensorFlow and Horovod say why.
    run = _python(_GPUS, with_gpus=True)
    answer = run.stdout.splitlines()[-1] if run.returncode == 0 else "[0, false, null]"
    used, built, tensorflow = json.loads(answer)
    if used == 0 or built:
        return Finding("GPUs", state, Level.NOTE, "tfhybrid was never run on several GPUs")
    state += f"; TensorFlow uses {used}, but Horovod was not built for GPUs"
    mend = "HOROVOD_GPU_OPERATIONS=NCCL scripts/horovod builds it for GPUs"
    if tuple(map(int, tensorflow.split(".")[:2])) > _LAST_WITH_GPUS:
        last = ".".join(map(str, _LAST_WITH_GPUS))
        mend = f"Horovod can be built for GPUs only up to TensorFlow {last}"
    return Finding(
        "GPUs", state, Level.WARNING, f"{mend}; or train on CPUs: export CUDA_VISIBLE_DEVICES="
    )


# Names of the checks that take seconds, for people who wait.
_LONG = {
    tensorflow: "TensorFlow, which is imported in a process of its own",
    horovod: "Horovod, which is imported in a process of its own",
    gpus: "GPUs",
}
CHECKS: tuple[Callable[[], Finding], ...] = (
    *(versions, tensorflow, keras, horovod, shared_memory, huge_pages, memory_limit, remove_ipc),
    *(limits, processors, interfaces, gpus),
)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python(code: str, *, with_gpus: bool = False) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, "-c", code], with_gpus=with_gpus)


def _run(command: list[str], *, with_gpus: bool = False) -> subprocess.CompletedProcess[str]:
    changes = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if not with_gpus:
        changes["CUDA_VISIBLE_DEVICES"] = ""
    environment = environment_of_child(changes)
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {_SECONDS} s")


def _problem_of(code: str) -> str | None:
    run = _python(code)
    return None if run.returncode == 0 else _last_line(run.stderr)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no message")


def _file_system(path: str) -> str:
    """Returns the type of a path's file system."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    real = os.path.realpath(path)
    points = [(point, kind) for _, point, kind, *_ in mounts]
    around = [
        each for each in points if real == each[0] or real.startswith(each[0].rstrip("/") + "/")
    ]
    return max(around, key=lambda each: len(each[0]), default=("", "unknown"))[1]


def _chosen(text: str) -> str:
    """Returns the word in brackets of `always [advise] never`."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else text.strip()


def _speed(path: Path) -> str:
    try:
        speed = int(path.read_text())
    except (OSError, ValueError):  # virtual links have no speed
        return ""
    return f" ({speed} Mbit/s)" if speed > 0 else ""
