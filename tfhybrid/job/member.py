"""A rank, as it introduces itself to another one."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Member:
    """A rank, as it introduces itself to another one.

    Args:
        rank: Its number.
        pid: Its process.
        host: Its host.
        neighbours: The first and the last rank of its host.
        secret: A random secret. Once Horovod runs, the ranks compare their secrets.
    """

    rank: int
    pid: int
    host: str
    neighbours: tuple[int, int]
    secret: str

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"

    def to_json(self) -> str:
        """Returns it as one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Member:
        """Parses the output of `to_json`.

        Raises:
            ValueError: Something else has.
        """
        try:
            told = json.loads(text)
            first, last = map(int, told["neighbours"])
            return cls(
                int(told["rank"]),
                int(told["pid"]),
                str(told["host"]),
                (first, last),
                str(told["secret"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"A rank must introduce itself in JSON. Received: {text!r}") from error
