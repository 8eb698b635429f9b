"""Tokens, which the processes of one job, cluster or stream send to a listener; their rights."""

from __future__ import annotations

import secrets

RIGHTS = ("read", "train", "operate")
"""Rights that a token of a stream can give, each of which includes those before it."""


def permits(right: str | None, needed: str) -> bool:
    """Returns whether a caller may make a call.

    Args:
        right: Right of the caller's token, one of `RIGHTS`; `None` for every right.
        needed: Right that the call needs.
    """
    return right is None or RIGHTS.index(right) >= RIGHTS.index(needed)


def new_token() -> str:
    """Returns a random token, which the processes of one job or cluster send to a listener."""
    return secrets.token_hex(16)
