"""Token of a store: the run of the job that created it, and the number of its host.

Ranks compare tokens to see whether their stores belong together. Stores of different runs do not,
nor do those of hosts that come in another order.
"""

from __future__ import annotations

_HOST_BITS = 16
RUN_BITS = 48


def token_of(run: int, host: int) -> int:
    """Returns the token of a host's store: the number by which ranks recognize that store.

    Args:
        run: Random number of the run.
        host: Number of the host.
    """
    return run << _HOST_BITS | host


def run_of(token: int) -> int:
    """Returns the run that created a store.

    Args:
        token: Token of the store.
    """
    return token >> _HOST_BITS


def host_of(token: int) -> int:
    """Returns the number of the host on which a store was created.

    Args:
        token: Token of the store.
    """
    return token % 2**_HOST_BITS
