"""TLS of a stream's connections: one relay carries all those of this process."""

from __future__ import annotations

import threading

from tfhybrid.nodes.tls import Tls
from tfhybrid.settings import TlsFiles, tls_files

_lock = threading.Lock()
_relays: dict[TlsFiles, Tls] = {}


def relay() -> Tls | None:
    """Returns what encrypts this process's connections, by the `TFHYBRID_TLS_` variables.

    The first call starts it. It ends with the process; one that has died is replaced.

    Returns:
        The relay, or `None` where the variables are not set.

    Raises:
        ConfigError: Some of them are missing, or a file cannot be used.
    """
    files = tls_files()
    if files is None:
        return None
    with _lock:
        if files not in _relays or _relays[files].ended:
            _relays[files] = Tls(files)
        return _relays[files]
