"""Checks that all ranks agree before they act together."""

from __future__ import annotations

from collections.abc import Mapping

from tfhybrid.distributed.collectives import allgather_object, here
from tfhybrid.errors import ConfigError

_ABSENT = "nothing"


def check_same(mine: Mapping[str, object]) -> None:
    """Checks that the values are the same on all ranks; every rank must call it.

    Args:
        mine: Values that Python can pickle and compare, by description.

    Raises:
        ConfigError: On all ranks, if a value differs; names it, its values and their ranks.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> check_same({"batch size": 4096})
    """
    (first, wanted), *others = allgather_object((here(), dict(mine)))
    everything = dict.fromkeys(wanted) | {what: None for _, given in others for what in given}
    for what in everything:
        value = wanted.get(what, _ABSENT)
        differing = [
            f"{given.get(what, _ABSENT)!r} on {rank}"
            for rank, given in others
            if given.get(what, _ABSENT) != value
        ]
        if differing:
            raise ConfigError(
                f"All ranks must have the same {what}. Received: {value!r} on {first}, but "
                f"{', '.join(differing)}"
            )
