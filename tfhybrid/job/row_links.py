"""Start and end of the row service between the hosts of a job."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from tfhybrid import distributed
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.job.row_service import Leader, RowService
from tfhybrid.rpc import listener
from tfhybrid.rpc.tls import Tls
from tfhybrid.rpc.tokens import new_token
from tfhybrid.settings import silence_seconds

_log = logging.getLogger("tfhybrid.job")

_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0  # time until a waiting leader logs that it waits


def start(engine: Engine, tls: Tls | None) -> RowService | None:
    """Starts the row service of a job on several hosts. Every rank must call it.

    Each leader listens on the network that `horovodrun` uses. Ranks connect when they first open a
    sharded table.

    Args:
        engine: Engine of this rank, with an open store.
        tls: TLS relay of this rank, which ends with the service; `None` if connections are not
            encrypted.

    Returns:
        The row service of this rank, or `None` in a job on one host.

    Raises:
        StoreError: On all other ranks: a leader cannot listen.
        OSError: This leader cannot listen.
        ConfigError: `TFHYBRID_SILENCE_SECONDS` is out of range.
    """
    if len(set(engine.hosts)) == 1:
        return None
    leads = distributed.local_rank() == 0
    listener_socket = distributed.together(
        lambda: listener.listen(distributed.address()) if leads else None
    )
    token = distributed.broadcast_object(new_token())
    address = None if listener_socket is None else listener_socket.getsockname()[:2]
    leaders = distributed.allgather_object((address, distributed.process()))
    service = RowService(engine, distributed.rank(), listener_socket, token, silence_seconds(), tls)
    service.start([Leader(*each) for each in leaders])
    return service


def leave(engine: Engine, neighbours: Iterable[int], *, exits: bool) -> None:
    """Ends this rank's reads. A leader then waits until no rank can need its host's rows.

    One rank may work alone after training, to evaluate or to export, and its lookups need the
    leaders of all hosts. So a leader leaves the job only after the ranks of other hosts, and those
    of its own host, have left or died. With embedding nodes rank 0 is the last one, because the
    nodes serve until it leaves.

    Args:
        engine: Engine of this rank, with an open store.
        neighbours: Local ranks for which a leader waits.
        exits: True if Python exits. This rank then shuts Horovod down, so that a rank that still
            calls a collective gets an error. Otherwise both would wait for each other.

    Raises:
        StoreError: The store is closed.
    """
    engine.end_reads()
    # Horovod can answer these only until it is shut down.
    here, leads = distributed.here(), distributed.local_rank() == 0
    if exits:
        distributed.stop()
    if not leads:
        return
    warning_at = time.monotonic() + _PATIENCE_SECONDS
    while waits := engine.readers() + sum(
        engine.rank_state(each)[0] == native.RankState.LIVING for each in neighbours
    ):
        if time.monotonic() > warning_at:
            _log.warning(
                "%s has finished and waits for %d ranks that may still read its rows",
                here,
                waits,
            )
            warning_at = float("inf")
        time.sleep(_LOOK_SECONDS)
