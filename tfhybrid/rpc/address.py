"""Addresses of listeners, as users write them."""

from __future__ import annotations

from tfhybrid.errors import ConfigError


def parsed_address(text: str) -> tuple[str, int]:
    """Splits an address into host and port.

    Args:
        text: Address as `HOST:PORT`; an IPv6 host may be in brackets.

    Returns:
        Host, without brackets, and port.

    Raises:
        ConfigError: The text has another form, or the port is not between 1 and 65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"An address is HOST:PORT, with a port from 1 to 65535. Received: {text!r}"
        )
    return host.strip("[]"), int(port)
