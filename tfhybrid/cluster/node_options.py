"""With what a node is started."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
from pathlib import Path

from tfhybrid.errors import ConfigError
from tfhybrid.job.row_service import new_token
from tfhybrid.rpc.tls import Tls
from tfhybrid.settings import log_level


def parsed_address(text: str) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT`.

    Raises:
        ConfigError: It is not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"An address is HOST:PORT. Received: {text!r}")
    return host.strip("[]"), int(port)


def read_token(path: Path) -> str:
    """Returns the token that a file holds.

    Raises:
        ConfigError: The file is not there, or empty.
    """
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"The token cannot be read: {error}") from error
    if not token:
        raise ConfigError(f"A file holds the token. Received: {path}, empty")
    return token


def make_token(path: Path) -> None:
    """Writes a new token to a file that only its owner can read, unless it is there."""
    if not path.exists():
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w") as file:
            file.write(new_token())


@dataclasses.dataclass(frozen=True)
class NodeOptions:
    """What every node but the metadata node is told.

    Args:
        name: Of the node.
        metadata: Address of the metadata node.
        token: Of the cluster.
        listen: The address, and so the network, on which it listens.
        port: Of it; 0 for a free one.
        tls: What encrypts its connections; `None` for none.
    """

    name: str
    metadata: tuple[str, int]
    token: str
    listen: str
    port: int
    tls: Tls | None = None

    @classmethod
    def from_command_line(cls, description: str) -> NodeOptions:
        """Returns what the command line says, and sets up logging."""
        return cls.told(cls.parser(description).parse_args())

    @staticmethod
    def parser(description: str) -> argparse.ArgumentParser:
        """Returns what reads the options of every node."""
        parser = argparse.ArgumentParser(description=description.splitlines()[0])
        parser.add_argument("--name", required=True)
        parser.add_argument("--metadata", required=True, metavar="HOST:PORT")
        parser.add_argument("--token-file", required=True, type=Path)
        parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS")
        parser.add_argument("--port", default=0, type=int)
        return parser

    @classmethod
    def told(cls, told: argparse.Namespace) -> NodeOptions:
        """Returns what `parser` has read, and sets up logging."""
        set_up_logging()
        return cls(
            told.name,
            parsed_address(told.metadata),
            read_token(told.token_file),
            told.listen,
            told.port,
            Tls.from_environment(),
        )


def set_up_logging() -> None:
    """Has a node log to standard error."""
    logging.basicConfig(level=log_level(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
