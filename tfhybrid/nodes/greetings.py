"""What a process says of itself at the door of a node, behind the token."""

from __future__ import annotations

import dataclasses
import enum
import json

from tfhybrid.errors import StoreError


class Link(enum.StrEnum):
    """What a connection to a node is for."""

    CALLS = "calls"
    BATCHES = "batches"  # calls by which data nodes give embedding nodes their keys
    READS = "reads"
    UPDATES = "updates"
    ROWS = "rows"  # on which an embedding node sends a trainer rows unasked
    STAGED = "staged"  # on which an embedding node tells host 0 what it has staged
    STORE = "store"  # on which a node sends its store of a share to the node that takes it over


@dataclasses.dataclass(frozen=True)
class Greeting:
    """A connection that a process wants.

    Args:
        to: What it is for.
        name: What the process calls itself.
        session: Of the job, for rows and updates.
        host: Of the process, likewise.
        share: Of the slots, whose rows these are, likewise.
        rank: Of the process, for rows that are sent unasked.
    """

    to: Link
    name: str
    session: str = ""
    host: int = 0
    share: int = 0
    rank: int = 0

    def text(self) -> str:
        """Returns it as it is said."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def heard(cls, text: str) -> Greeting:
        """Returns what `text` was made from.

        Raises:
            StoreError: It is nothing of the kind.
        """
        try:
            said = json.loads(text)
            link = Link(said["to"])
            return cls(
                link,
                str(said["name"]),
                str(said.get("session", "")),
                int(said.get("host", 0)),
                int(said.get("share", 0)),
                int(said.get("rank", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"A process greeted with {text[:200]!r}: {error!r}") from error
