"""Handshake of a connection to a node."""

from __future__ import annotations

import dataclasses
import enum
import json

from tfhybrid.errors import StoreError

PROTOCOL = 3  # version of the messages between processes; the two ends must have the same

# Raised by a text that is none: no JSON, no object, an infinite number, too many brackets.
_INVALID = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

_KEYS = {"shard": "share"}  # keys of the message that differ from the names of the fields


_MAX_NAME = 255  # characters; host names have as many


def checked_name(name: str) -> str:
    """Returns the name of a process, after checking that logs and metrics can show it.

    Args:
        name: Name that the process gave itself.

    Raises:
        StoreError: The name is empty, is too long, or has line breaks or other control characters.
    """
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise StoreError(
            f"The name of a process must have 1 to {_MAX_NAME} printable characters. "
            f"Received: {name[:_MAX_NAME]!r}"
        )
    return name


class Purpose(enum.StrEnum):
    """Purpose of a connection to a node."""

    CALLS = "calls"
    BATCHES = "batches"  # calls of data nodes, which send the keys of batches
    READS = "reads"
    UPDATES = "updates"
    PASSES = "passes"  # messages between the leaders of hosts about passes over a table
    ROWS = "rows"  # rows that an embedding node pushes to a trainer
    STAGED = "staged"  # notices of an embedding node to host 0 about staged updates
    STORE = "store"  # copy of a shard's store, sent to the next owner of the shard


@dataclasses.dataclass(frozen=True)
class Handshake:
    """First message on a connection to a node, sent behind the token.

    Args:
        to: Use of the connection.
        name: Name of the caller, for logs and errors.
        session: Session of the job; an embedding node refuses another one, except on CALLS. Default
            empty: the job has none yet.
        host: Host number of the caller; used on READS, UPDATES and STAGED.
        shard: Number of the shard of the slots; used on every link to the store of a shard.
        rank: Rank of the caller; set on ROWS, and between ranks.
    """

    to: Purpose
    name: str
    session: str = ""
    host: int = 0
    shard: int = 0
    rank: int = 0

    def text(self) -> str:
        """Returns the handshake as JSON text, as it is sent behind the token."""
        fields = {"protocol": PROTOCOL} | dataclasses.asdict(self)
        return json.dumps({_KEYS.get(name, name): value for name, value in fields.items()})

    @classmethod
    def heard(cls, text: str) -> Handshake:
        """Parses the output of `text`.

        Args:
            text: Line of JSON from the process that connects.

        Returns:
            The handshake.

        Raises:
            StoreError: The text is not a valid handshake, has another version of the protocol, or
                has a name that logs cannot show.
        """
        try:
            fields = json.loads(text)
            name = checked_name(str(fields["name"]))
            protocol = fields.get("protocol")
            if protocol != PROTOCOL:
                raise StoreError(
                    f"All processes must run one version of tfhybrid: {name} must speak "
                    f"version {PROTOCOL} of the protocol. Received: version {protocol}"
                )
            link = Purpose(fields["to"])
            return cls(
                link,
                name,
                str(fields.get("session", "")),
                int(fields.get("host", 0)),
                int(fields.get("share", 0)),
                int(fields.get("rank", 0)),
            )
        except _INVALID as error:
            raise StoreError(
                f"A handshake must be JSON with `to` and `name`. Received: {text[:200]!r}: "
                f"{error!r}"
            ) from error

    @staticmethod
    def purpose_of(text: str) -> Purpose | None:
        """Returns the purpose in a handshake, also in one that `heard` refuses.

        Args:
            text: Line of JSON from the process that connects.

        Returns:
            The purpose, or `None` if the text names none.
        """
        try:
            return Purpose(json.loads(text)["to"])
        except _INVALID:
            return None
