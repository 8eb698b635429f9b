"""Checks that all ranks agree before they act together."""

from __future__ import annotations

from collections.abc import Mapping

from tfhybrid.distributed.collectives import allgather_object, here
from tfhybrid.errors import ConfigError

_ABSENT = "nothing"


def check_same(mine: Mapping[str, object]) -> None:
    """Checks that the values are the same on all ranks; every rank must call it.

    Args:
        mine: Values of this rank by description. Python must be able to pickle and compare them.

    Raises:
        ConfigError: A value differs. Raised on all ranks; names the value of each differing rank.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> check_same({"batch size": 4096})
    """
    (first, of_first), *others = allgather_object((here(), dict(mine)))
    names = dict.fromkeys(of_first) | {name: None for _, of_rank in others for name in of_rank}
    for name in names:
        value = of_first.get(name, _ABSENT)
        differing = [
            f"{of_rank.get(name, _ABSENT)!r} on {rank}"
            for rank, of_rank in others
            if of_rank.get(name, _ABSENT) != value
        ]
        if differing:
            raise ConfigError(
                f"All ranks must have the same {name}. Received: {value!r} on {first}, but "
                f"{', '.join(differing)}"
            )
