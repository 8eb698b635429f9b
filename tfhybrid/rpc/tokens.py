"""Tokens, which the processes of one job or cluster send to a listener."""

from __future__ import annotations

import secrets

PROTOCOL = "rows2."  # prefix of a token, so that processes of another protocol are refused


def new_token() -> str:
    """Returns a random token, which the processes of one job or cluster send to a listener."""
    return PROTOCOL + secrets.token_hex(16)
