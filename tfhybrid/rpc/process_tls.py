"""TLS relay shared by all stream connections of this process."""

from __future__ import annotations

import threading

from tfhybrid.rpc.tls import Tls
from tfhybrid.settings import TlsFiles, tls_files

_lock = threading.Lock()
_relays: dict[TlsFiles, Tls] = {}


def tls_relay() -> Tls | None:
    """Returns the TLS relay of this process's stream connections. Thread-safe.

    The first call starts it. It ends with the process; a later call replaces one that has died.

    Returns:
        The relay, or `None` if none of the `TFHYBRID_TLS_` variables is set.

    Raises:
        ConfigError: Only some of the variables are set, or a file cannot be used.
    """
    files = tls_files()
    if files is None:
        return None
    with _lock:
        if files not in _relays or _relays[files].ended:
            _relays[files] = Tls(files)
        return _relays[files]
