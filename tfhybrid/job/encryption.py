"""Whether the ranks of a job encrypt what they send to other hosts and to nodes."""

from __future__ import annotations

from tfhybrid import distributed
from tfhybrid.nodes.tls import Tls
from tfhybrid.settings import tls_files


def start() -> Tls | None:
    """Starts this rank's relay, where certificates are given; every rank must call it.

    Raises:
        ConfigError: Certificates are given to some ranks only, or cannot be used; on all ranks.
    """
    files = distributed.together(tls_files)
    distributed.check_same({"TLS of the row service": files is not None})
    return distributed.together(lambda: None if files is None else Tls(files))
