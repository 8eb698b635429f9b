"""Token of a store: the run of the job that created it, and the number of its host.

Ranks compare tokens to see whether their stores belong together. Stores of different runs do not,
nor do those of hosts that come in another order.
"""

from __future__ import annotations

_HOST_BITS = 16
RUN_BITS = 48


def token_of(run: int, host: int) -> int:
    """Returns the token of a host's store in a run."""
    return run << _HOST_BITS | host


def run_of(token: int) -> int:
    """Returns the run that created a store."""
    return token >> _HOST_BITS


def host_of(token: int) -> int:
    """Returns the number of the host on which a store was created."""
    return token % 2**_HOST_BITS
