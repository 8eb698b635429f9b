"""A store's token: the run of the job that made it, and the number of the host that it was made on.

By it stores of different runs, or of hosts that come in another order, are told from those that
belong together.
"""

from __future__ import annotations

_HOST_BITS = 16
RUN_BITS = 48


def token_of(run: int, host: int) -> int:
    """Returns the token of a host's store in a run."""
    return run << _HOST_BITS | host


def run_of(token: int) -> int:
    """Returns the run that made a store."""
    return token >> _HOST_BITS


def host_of(token: int) -> int:
    """Returns the number of the host that a store was made on."""
    return token % 2**_HOST_BITS
