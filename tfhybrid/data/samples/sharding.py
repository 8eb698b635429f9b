"""Division of samples among ranks: each sample once, and as many steps on every rank."""

from __future__ import annotations

import dataclasses

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Shard:
    """The part of the samples that one rank takes.

    Args:
        rank: Number of this rank, from 0.
        size: Number of ranks.

    Raises:
        ConfigError: `rank` is not in `[0, size)`.

    Example:

    >>> [Shard(rank, 3).part(0, 8) for rank in range(3)]
    [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
    """

    rank: int
    size: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ConfigError(f"rank must be in [0, size). Received: {self.rank} of {self.size}.")

    @classmethod
    def of_this_process(cls) -> Shard:
        """Returns the shard of this rank: its rank and the number of ranks.

        Call `tfhybrid.init()` before: until then it is the only shard, 0 of 1.
        """
        from tfhybrid import distributed  # the only place where reading data needs Horovod

        return cls(distributed.rank(), distributed.size())

    def part(self, begin: int, end: int) -> slice:
        """Returns this rank's contiguous part of `[begin, end)`; parts differ by one at most.

        Args:
            begin: First number of the range.
            end: Number after the last one of the range.
        """
        count = end - begin
        return slice(
            begin + count * self.rank // self.size, begin + count * (self.rank + 1) // self.size
        )


@dataclasses.dataclass(frozen=True)
class Steps:
    """Division of `[0, samples)` into global batches of which every rank has a part.

    Each global batch has `batch_size * size` samples, except the last. The last one has the
    remaining samples; if these are fewer than the ranks, they are added to the previous batch
    instead. So no sample is lost, no rank is without samples, and all ranks make the same number of
    steps. If there are fewer samples than ranks in total, there is no step.

    Args:
        samples: Number of samples.
        batch_size: Samples of one rank in a full batch.
        size: Number of ranks.
        drop_remainder: Whether to drop an incomplete last batch. Default false.

    Raises:
        ConfigError: `batch_size` is not positive.

    Example:

    >>> steps = Steps(samples=13, batch_size=3, size=2)
    >>> [steps.bounds(step) for step in range(steps.count)]
    [(0, 6), (6, 13)]
    """

    samples: int
    batch_size: int
    size: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1. Received: {self.batch_size}.")

    @property
    def count(self) -> int:
        """Number of steps, the same on every rank."""
        full, left = divmod(self.samples, self.batch_size * self.size)
        return full + (left >= self.size and not self.drop_remainder)

    def bounds(self, step: int) -> tuple[int, int]:
        """Returns the range of a step's global batch: the first sample, and one past the last.

        Args:
            step: Number of the step, from 0 to `count - 1`; not checked.
        """
        global_batch = self.batch_size * self.size
        begin = step * global_batch
        if step == self.count - 1 and not self.drop_remainder:
            return begin, self.samples
        return begin, begin + global_batch
