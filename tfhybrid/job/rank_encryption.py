"""Encryption of a job's connections to other hosts and to nodes."""

from __future__ import annotations

from tfhybrid import distributed
from tfhybrid.rpc.tls import Tls
from tfhybrid.settings import tls_files


def start() -> Tls | None:
    """Starts this rank's TLS relay if the `TFHYBRID_TLS_` variables are set.

    Every rank must call it.

    Returns:
        The relay, or `None` if the variables are not set.

    Raises:
        ConfigError: The variables are set on some ranks only, or a file of this rank cannot be
            used.
        StoreError: A file of another rank cannot be used.
    """
    files = distributed.together(tls_files)
    distributed.check_same({"TLS of the row service": files is not None})
    return distributed.together(lambda: None if files is None else Tls(files))
