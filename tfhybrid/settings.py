"""Environment variables: the only module of the package that reads the environment.

`VARIABLES` declares those of tfhybrid, all optional, and those that it sets for Horovod and
TensorFlow. The functions read them, and the few variables of other programs that tfhybrid heeds, at
each call.
"""

from __future__ import annotations

import dataclasses
import glob
import math
import os
import socket
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from tfhybrid.errors import ConfigError

_LATER_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class Variable:
    """An environment variable of tfhybrid, or one that it sets for Horovod or TensorFlow.

    Args:
        name: Name of the variable.
        default: Value if the variable is not set, in Markdown.
        meaning: Meaning of the value, in Markdown.
    """

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("TFHYBRID_SHM_DIR", "`/dev/shm`", "Directory of the store, on a tmpfs"),
    Variable(
        "TFHYBRID_DATA",
        "`../shared/data`",
        "Directory of the data archives that examples and tests read",
    ),
    Variable(
        "TFHYBRID_LOG_LEVEL",
        "`INFO`",
        "Level of the `tfhybrid` loggers on rank 0; on other ranks it is `WARNING`",
    ),
    Variable("TFHYBRID_METRICS_PORT", "none", "Port of `tfhybrid.metrics.serve()`, for Prometheus"),
    Variable(
        "TFHYBRID_METRICS_HOST",
        "`127.0.0.1`",
        "Address on which `tfhybrid.metrics.serve()` listens; `0.0.0.0` for other hosts too",
    ),
    Variable(
        "TFHYBRID_TIMELINE",
        "none",
        "Existing directory in which every rank writes the timeline of its phases",
    ),
    Variable(
        "TFHYBRID_SILENCE_SECONDS",
        "60",
        "Seconds for which another host may be silent before the job ends, 1 to 86400; equal on "
        "all ranks",
    ),
    Variable(
        "TFHYBRID_TLS_CERT",
        "none",
        "PEM file of this host's certificate, with which the row service, nodes and streams "
        "encrypt. Set all three `TFHYBRID_TLS_` variables or none, on all ranks and nodes alike",
    ),
    Variable("TFHYBRID_TLS_KEY", "none", "PEM file of the certificate's private key"),
    Variable(
        "TFHYBRID_TLS_CA", "none", "PEM file of the CA that has issued the certificates of all"
    ),
    Variable(
        "TFHYBRID_NODES",
        "none",
        "`HOST:PORT` of a metadata node, whose embedding nodes own the tables",
    ),
    Variable("TFHYBRID_NODES_TOKEN", "none", "File with the token of these nodes"),
    Variable(
        "TFHYBRID_NODE_NAME",
        "none",
        "Name of a process that `tfhybrid nodes up` starts, which sets it",
    ),
    Variable(
        "TFHYBRID_STREAM",
        "none",
        "Path of `stream.yaml`, for a trainer that `tfhybrid stream run` starts, which sets it",
    ),
    Variable(
        "TFHYBRID_STREAM_TRAINER", "host name and process id", "Name of this trainer of a stream"
    ),
    Variable(
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        f"`TFHYBRID_SILENCE_SECONDS` + {_LATER_SECONDS}",
        "Timeout of Horovod, which must not come before tfhybrid's",
    ),
    Variable(
        "HOROVOD_DISABLE_GROUP_FUSION",
        "1",
        "Whether Horovod keeps the order of dense gradients, and so their bits",
    ),
    Variable(
        "HOROVOD_DYNAMIC_PROCESS_SETS",
        "1",
        "Whether the leaders of several hosts can have a process set of their own",
    ),
    Variable(
        "HOROVOD_CYCLE_TIME",
        "5 without GPUs, 20 on one host without GPUs",
        "Milliseconds between two exchanges of Horovod about which tensors are ready",
    ),
    Variable(
        "TF_CPP_MIN_LOG_LEVEL",
        "3",
        "Messages that TensorFlow's C++ code writes: `0` all, `1` no information, `2` no warnings, "
        "`3` fatal errors alone; other errors are raised",
    ),
)

# Keras warns of its own default, `shuffle=True`, whenever `fit` gets a `tf.data.Dataset`.
_NEEDLESS_WARNING = "`shuffle=True` was passed, but will be ignored"

# In each cycle the ranks tell each other which tensors are ready, even if none are, and Gloo polls
# while a rank waits. Horovod's default of 1 ms takes a tenth of a step's processor time or more. On
# one host no step needs Horovod (`optimizers/dense_step.py`).
_CYCLE_TIME, _CYCLE_TIME_ON_ONE_HOST = "5", "20"

_ALLOCATOR_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")


def shm_directory() -> str:
    """Returns the directory of the stores."""
    return os.environ.get("TFHYBRID_SHM_DIR", "/dev/shm").rstrip("/") or "/"


def data_directory() -> Path | None:
    """Returns the directory of the data archives, or `None` if it is not set."""
    directory = os.environ.get("TFHYBRID_DATA")
    return Path(directory) if directory else None


def cache_directory() -> Path:
    """Returns the user's directory of caches, which all programs share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def log_level() -> str:
    """Returns the level of the "tfhybrid" logger as an upper-case name, which is not checked."""
    return os.environ.get("TFHYBRID_LOG_LEVEL", "INFO").upper()


def metrics_port() -> int | None:
    """Returns the port of the endpoint for Prometheus, or `None` if it is not set.

    Raises:
        ConfigError: The variable is not a port.
    """
    text = os.environ.get("TFHYBRID_METRICS_PORT")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise ConfigError(
            f"TFHYBRID_METRICS_PORT must be a port from 0 to 65535. Received: {text!r}"
        )
    return int(text)


def metrics_host() -> str:
    """Returns the address on which the endpoint for Prometheus listens."""
    return os.environ.get("TFHYBRID_METRICS_HOST") or "127.0.0.1"


def timeline_directory() -> str | None:
    """Returns the directory in which ranks write their timelines, or `None` if it is not set."""
    return os.environ.get("TFHYBRID_TIMELINE") or None


def stream_trainer() -> str:
    """Returns the name of this process as a trainer of a stream."""
    return os.environ.get("TFHYBRID_STREAM_TRAINER") or f"{socket.gethostname()}-{os.getpid()}"


def silence_seconds() -> float:
    """Returns the seconds after which the job ends if a host gives no sign of life.

    Raises:
        ConfigError: The variable is not a number from 1 to 86400.
    """
    text = os.environ.get("TFHYBRID_SILENCE_SECONDS", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86400:
        raise ConfigError(
            f"TFHYBRID_SILENCE_SECONDS must be from 1 to 86400 seconds. Received: {text!r}"
        )
    return seconds


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """PEM files that TLS needs.

    Args:
        cert: Path of this host's certificate, with any intermediate certificates.
        key: Path of the certificate's private key, without a password.
        ca: Path of the CA that must have issued the certificates of both sides.
    """

    cert: str
    key: str
    ca: str


def tls_files() -> TlsFiles | None:
    """Returns the TLS files of this process, or `None` if none are set.

    Raises:
        ConfigError: Only some of them are set.
    """
    names = [f"TFHYBRID_TLS_{name}" for name in ("CERT", "KEY", "CA")]
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    if not given:
        return None
    if len(given) < len(names):
        raise ConfigError(f"{', '.join(names)} must be set together. Received: {given}")
    return TlsFiles(*(given[name] for name in names))


def nodes() -> tuple[str, Path] | None:
    """Returns the metadata node's address and its token file, or `None` without nodes.

    Raises:
        ConfigError: The address is set without the token file.
    """
    address = os.environ.get("TFHYBRID_NODES")
    if not address:
        return None
    token = os.environ.get("TFHYBRID_NODES_TOKEN")
    if not token:
        raise ConfigError(
            "TFHYBRID_NODES_TOKEN must name the nodes' token file, which `tfhybrid nodes up` made. "
            f"Received: TFHYBRID_NODES={address!r} alone"
        )
    return address, Path(token)


def forget_nodes() -> None:
    """Makes `nodes` return `None` in this process and in those that it starts."""
    os.environ.pop("TFHYBRID_NODES", None)


def own_variables() -> dict[str, str]:
    """Returns the variables of tfhybrid that are set, for processes on other machines."""
    return {name: text for name, text in os.environ.items() if name.startswith("TFHYBRID_")}


def environment_of_child(changes: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process that this one starts.

    Args:
        changes: Variables that the process has in addition to, or instead of, this process's.
    """
    return {**os.environ, **changes}


def user_has_chosen_allocator() -> bool:
    """Returns whether the user has set options of glibc's malloc, or another allocator."""
    return (
        any(name in os.environ for name in _ALLOCATOR_VARIABLES)
        or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
        or "malloc" in os.environ.get("LD_PRELOAD", "")
    )


def uses_legacy_keras() -> bool:
    """Returns whether the user wants Keras 2 as `tf.keras`."""
    return os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")


def ray_address() -> str:
    """Returns the address of the Ray cluster; "auto" if it is not set."""
    return os.environ.get("RAY_ADDRESS", "auto")


def ray_auth_mode() -> str | None:
    """Returns the authentication of the Ray cluster, or `None` if it is not set."""
    return os.environ.get("RAY_AUTH_MODE")


def set_horovod_defaults() -> None:
    """Sets the variables that Horovod reads when it starts, unless the user has set them.

    Raises:
        ConfigError: See `silence_seconds`.
    """
    # Horovod fuses whichever tensors happen to be ready together. That would change the order in
    # which a dense gradient is summed, and so its bits.
    os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")
    # Leaders use a process set of their own.
    os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    # Horovod's own timeout does not say which rank is missing; its default, 30 s, would fire first.
    patience = math.ceil(silence_seconds()) + _LATER_SECONDS
    os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(patience))


def quiet_libraries() -> None:
    """Hides messages of TensorFlow and Keras at every start, unless the user has chosen messages.

    TensorFlow reads its variable when it is imported. A filter of the user's comes before this one.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not sys.warnoptions:  # -W and PYTHONWARNINGS
        warnings.filterwarnings("ignore", _NEEDLESS_WARNING, UserWarning, append=True)


def available_gpus() -> int:
    """Returns the number of this host's NVIDIA GPUs, or 0 if the user hides them from programs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.startswith((*"0123456789", "GPU-", "MIG-")):
        return 0  # "", "-1" and Slurm's "NoDevFiles"
    return len(glob.glob("/dev/nvidia[0-9]*"))


def set_long_cycle() -> None:
    """Sets a longer cycle time of Horovod than its default, unless the user has set one.

    Call it before Horovod starts, in a process without GPUs.
    """
    one_host = os.environ.get("HOROVOD_CROSS_SIZE") == "1"
    cycle_time = _CYCLE_TIME_ON_ONE_HOST if one_host else _CYCLE_TIME
    os.environ.setdefault("HOROVOD_CYCLE_TIME", cycle_time)


def has_cycle_of_one_host() -> bool:
    """Returns whether Horovod's cycle time is the one that `set_long_cycle` sets on one host."""
    return os.environ.get("HOROVOD_CYCLE_TIME") == _CYCLE_TIME_ON_ONE_HOST


def launcher_ranks() -> tuple[int, int, int, int]:
    """Returns rank, size, local rank and local size, as `horovodrun` set them.

    Without `horovodrun` there is one rank: (0, 1, 0, 1).
    """
    defaults = {"RANK": "0", "SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"}
    rank, size, local_rank, local_size = (
        int(os.environ.get(f"HOROVOD_{name}", default)) for name, default in defaults.items()
    )
    return rank, size, local_rank, local_size


def launcher_host() -> str | None:
    """Returns the host on which `horovodrun` runs, or `None` without it."""
    return os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")


def launcher_address() -> tuple[str, int] | None:
    """Returns host and port of `horovodrun`'s key-value server.

    Returns:
        `None` without `horovodrun`, and in an elastic job, which gives its ranks no numbers.
    """
    if "HOROVOD_RANK" not in os.environ or "HOROVOD_ELASTIC" in os.environ:
        return None
    host, port = launcher_host(), os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "")
    return (host, int(port)) if host and port.isdigit() else None
