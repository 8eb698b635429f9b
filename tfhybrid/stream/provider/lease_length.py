"""The number of rows of a lease, chosen from the trainer's speed."""

from __future__ import annotations

import dataclasses

from tfhybrid._deprecated import renamed_fields
from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Load:
    """The speed and the backlog that a trainer reports with a request.

    Args:
        rows_per_second: Speed of the trainer over its last leases; 0 before its first. Default 0.
        seconds_in_hand: Time that the trainer needs for the rows it already has, in seconds.
            `Leases` requests rows when it has none, so this is 0 (the default).
    """

    rows_per_second: float = 0.0
    seconds_in_hand: float = 0.0


@renamed_fields(most_rows="max_rows")
@dataclasses.dataclass(frozen=True)
class LeaseLength:
    """Rule for the number of rows in a lease.

    Args:
        rows: Fixed number of rows. By default it follows from the trainer's load.
        seconds: Time for which a trainer should have work, its backlog included, in seconds.
            Default 5.
        first_rows: Number of rows for a trainer of unknown speed. Default 1024.
        max_rows: Maximum number of rows of any lease of more than one batch. Default 2**20.

    Raises:
        ConfigError: An argument is not positive.

    Example:

    >>> LeaseLength(seconds=5.0).rows_for(Load(rows_per_second=1000.0), batch=256)
    4864
    >>> LeaseLength(rows=512).rows_for(Load(), batch=256)
    512
    """

    rows: int | None = None
    seconds: float = 5.0
    first_rows: int = 1024
    max_rows: int = 1 << 20

    def __post_init__(self) -> None:
        numbers = {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }
        if not all(value > 0 for value in numbers.values()):
            raise ConfigError(
                f"The settings of a lease's length must be positive. Received: {numbers}"
            )

    def rows_for(self, load: Load, batch: int) -> int:
        """Returns the number of rows of a trainer's next lease: whole batches, at least one.

        Args:
            load: Speed and backlog of the trainer.
            batch: Rows of a step.
        """
        if self.rows is not None:
            rows = self.rows
        elif load.rows_per_second <= 0:
            rows = self.first_rows
        else:
            rows = int(load.rows_per_second * max(self.seconds - load.seconds_in_hand, 0.0))
        return max(min(rows, self.max_rows) // batch, 1) * batch
