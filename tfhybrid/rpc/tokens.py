"""Tokens, which the processes of one job or cluster send to a listener."""

from __future__ import annotations

import secrets


def new_token() -> str:
    """Returns a random token, which the processes of one job or cluster send to a listener."""
    return secrets.token_hex(16)
