"""Options of nodes, their token and their log."""

from __future__ import annotations

import dataclasses
import logging
import os
import stat
from pathlib import Path

from tfhybrid.errors import ConfigError
from tfhybrid.rpc.address import parsed_address
from tfhybrid.rpc.tls import Tls
from tfhybrid.rpc.tokens import new_token
from tfhybrid.settings import log_level

_log = logging.getLogger("tfhybrid.cluster")

_TOKEN_LENGTH = 16  # characters, at least


def read_token(path: Path) -> str:
    """Returns the token that a file contains, with a warning if every user may read the file.

    Args:
        path: Path of the token's file.

    Raises:
        ConfigError: The file cannot be read, or its token is too short to be a secret.
    """
    try:
        token = path.read_text().strip()
        # Orchestrators mount secrets that every user may read, and that no process can change.
        everyone_reads = bool(path.stat().st_mode & stat.S_IROTH) and os.access(path, os.W_OK)
    except OSError as error:
        raise ConfigError(f"The file of the token cannot be read: {error}") from error
    if len(token) < _TOKEN_LENGTH:
        raise ConfigError(
            f"The file of the token must contain it, of at least {_TOKEN_LENGTH} characters, such "
            f"as the output of `openssl rand -hex 16`. Received: {path}, {len(token)} characters"
        )
    if everyone_reads:
        _log.warning("Every user of this host may read the token in %s: chmod o-r", path)
    return token


def make_token(path: Path) -> None:
    """Writes a new token to a file that only its owner can read, unless the file exists.

    Raises:
        OSError: The file cannot be written.
    """
    if not path.exists():
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w") as file:
            file.write(new_token())


@dataclasses.dataclass(frozen=True)
class NodeOptions:
    """Options of a node that is not the metadata node.

    Args:
        name: Name of the node, unique within the cluster.
        metadata: Host and port of the metadata node, which knows all nodes.
        token: Secret of the cluster, by which nodes and trainers authenticate.
        listen: Address on which the node listens. Other hosts connect to it, so it must be in their
            network.
        port: Port on which the node listens; 0 for a free one.
        tls: TLS relay of the process, which lasts as long as the process. Default `None`: no
            encryption.
    """

    name: str
    metadata: tuple[str, int]
    token: str
    listen: str
    port: int
    tls: Tls | None = None

    @classmethod
    def read(
        cls, name: str, metadata: str, token_file: Path, listen: str, port: int
    ) -> NodeOptions:
        """Reads the token, sets up logging, and returns the options of a node.

        Also starts the TLS relay if the `TFHYBRID_TLS_` variables are set.

        Args:
            name: Name of the node, unique within the cluster.
            metadata: Address of the metadata node, as `HOST:PORT`.
            token_file: File with the token of the cluster.
            listen: Address on which the node listens, in a network that the other hosts reach.
            port: Port on which the node listens; 0 for a free one.

        Raises:
            ConfigError: The address, the token's file or the TLS files cannot be used.
            ValueError: `TFHYBRID_LOG_LEVEL` names no level.
        """
        set_up_logging()
        token, tls = read_token(token_file), Tls.from_environment()
        return cls(name, parsed_address(metadata), token, listen, port, tls)


def set_up_logging() -> None:
    """Lets this process log to standard error, at the level that `TFHYBRID_LOG_LEVEL` names.

    Raises:
        ValueError: There is no such level.
    """
    logging.basicConfig(level=log_level(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
