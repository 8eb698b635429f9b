"""How many rows a lease has: as long as the trainer's speed warrants."""

from __future__ import annotations

import dataclasses

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Load:
    """What a trainer says of itself when it asks for work.

    Args:
        rows_per_second: Over its last leases; 0 if it has had none.
        seconds_in_hand: Of the work that it has already.
    """

    rows_per_second: float = 0.0
    seconds_in_hand: float = 0.0


@dataclasses.dataclass(frozen=True)
class LeaseLength:
    """Decides how many rows a trainer gets.

    Args:
        rows: A fixed number. By default it follows from the trainer's load.
        seconds: How long a trainer shall have work, with what it has in hand.
        first_rows: Of a trainer whose speed nobody knows.
        most_rows: Of any lease.

    Raises:
        ConfigError: A number is not positive.

    Example:

    >>> LeaseLength(seconds=5.0).rows_for(Load(rows_per_second=1000.0), batch=256)
    4864
    >>> LeaseLength(rows=512).rows_for(Load(), batch=256)
    512
    """

    rows: int | None = None
    seconds: float = 5.0
    first_rows: int = 1024
    most_rows: int = 1 << 20

    def __post_init__(self) -> None:
        numbers = {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }
        if not all(value > 0 for value in numbers.values()):
            raise ConfigError(
                f"The length of a lease is made of positive numbers. Received: {numbers}"
            )

    def rows_for(self, load: Load, batch: int) -> int:
        """Returns how many rows a trainer gets: whole batches, at least one.

        Args:
            load: Of the trainer.
            batch: Rows of a step.
        """
        if self.rows is not None:
            rows = self.rows
        elif load.rows_per_second <= 0:
            rows = self.first_rows
        else:
            rows = int(load.rows_per_second * max(self.seconds - load.seconds_in_hand, 0.0))
        return max(min(rows, self.most_rows) // batch, 1) * batch
