"""Identity of a rank, as it introduces itself to another one."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class RankIdentity:
    """Identity of a rank, as it introduces itself to another one.

    Args:
        rank: Number of the rank.
        pid: Process id.
        host: Name of its host.
        neighbours: First and last rank on its host.
        secret: Random secret. The ranks compare their secrets once Horovod runs.
    """

    rank: int
    pid: int
    host: str
    neighbours: tuple[int, int]
    secret: str

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"

    def to_json(self) -> str:
        """Returns the identity as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RankIdentity:
        """Parses the output of `to_json`.

        Args:
            text: Line of JSON from another rank.

        Returns:
            The identity.

        Raises:
            ValueError: The text is not an identity.
        """
        try:
            fields = json.loads(text)
            first, last = map(int, fields["neighbours"])
            return cls(
                int(fields["rank"]),
                int(fields["pid"]),
                str(fields["host"]),
                (first, last),
                str(fields["secret"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"A rank must introduce itself in JSON. Received: {text!r}") from error
