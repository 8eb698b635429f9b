"""Environment variables that tfhybrid reads.

All are optional:

    TFHYBRID_SHM_DIR       directory of the store, on a tmpfs (default /dev/shm)
    TFHYBRID_DATA          directory of the data archives that examples and tests read
    TFHYBRID_LOG_LEVEL     level of the "tfhybrid" logger (default INFO)
    TFHYBRID_METRICS_PORT  port of `tfhybrid.metrics.serve()`, for Prometheus (default none)
    TFHYBRID_SILENCE_SECONDS   how long a host may be silent before the job ends (default 60)
    TFHYBRID_TLS_CERT, TFHYBRID_TLS_KEY, TFHYBRID_TLS_CA   PEM files with which the row service
                           encrypts its connections; set all three or none (default none)
    TFHYBRID_NODES         HOST:PORT of a metadata node, whose embedding nodes own the tables
    TFHYBRID_NODES_TOKEN   file that holds the token of these nodes
    TFHYBRID_STREAM_TRAINER    name of this trainer of a stream (default host and process id)
"""

from __future__ import annotations

import dataclasses
import math
import os
import socket
from pathlib import Path

from tfhybrid.errors import ConfigError

_LATER_SECONDS = 30


def shm_directory() -> str:
    """Returns the directory of the stores."""
    return os.environ.get("TFHYBRID_SHM_DIR", "/dev/shm").rstrip("/") or "/"


def log_level() -> str:
    """Returns the level of the "tfhybrid" logger, by name."""
    return os.environ.get("TFHYBRID_LOG_LEVEL", "INFO").upper()


def metrics_port() -> int | None:
    """Returns the port on which a job answers Prometheus, or `None`."""
    text = os.environ.get("TFHYBRID_METRICS_PORT")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise ConfigError(
            f"TFHYBRID_METRICS_PORT must be a port from 0 to 65535. Received: {text!r}"
        )
    return int(text)


def stream_trainer() -> str:
    """Returns what this process is called as a trainer of a stream."""
    return os.environ.get("TFHYBRID_STREAM_TRAINER") or f"{socket.gethostname()}-{os.getpid()}"


def silence_seconds() -> float:
    """Returns the seconds after which the job ends if a host gives no sign of life."""
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
    """The PEM files that TLS needs.

    Args:
        cert: This host's certificate, with any intermediate certificates.
        key: The certificate's private key, without a password.
        ca: The CA that must have issued the certificates of both sides.
    """

    cert: str
    key: str
    ca: str


def tls_files() -> TlsFiles | None:
    """Returns the TLS files of the row service, or `None` if none are configured.

    Raises:
        ConfigError: Only some of them are configured.
    """
    names = [f"TFHYBRID_TLS_{name}" for name in ("CERT", "KEY", "CA")]
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    if not given:
        return None
    if len(given) < len(names):
        raise ConfigError(f"{', '.join(names)} must be set together. Received: {given}")
    return TlsFiles(*(given[name] for name in names))


def nodes() -> tuple[str, Path] | None:
    """Returns the metadata node's address and its token file, or `None` without nodes."""
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
