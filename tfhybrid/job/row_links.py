"""Tells the ranks of a job on several hosts where the rows of other hosts are served."""

from __future__ import annotations

import logging
import time

from tfhybrid import distributed
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.nodes import door
from tfhybrid.nodes.row_service import Leader, RowService, new_token
from tfhybrid.nodes.tls import Tls
from tfhybrid.settings import silence_seconds

_log = logging.getLogger("tfhybrid.job")

_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0  # before it says what it waits for


def start(engine: Engine, tls: Tls | None) -> RowService | None:
    """Lets every leader serve its rows, where there are several hosts; every rank must call it.

    It listens on the network that `horovodrun` uses. Ranks connect when they first open a sharded
    table.

    Args:
        engine: Of this rank, with its store open.
        tls: What encrypts the connections; `None` for none.

    Raises:
        StoreError: A leader cannot listen; on all ranks.
    """
    if len(set(engine.hosts)) == 1:
        return None
    leads = distributed.local_rank() == 0
    listener = distributed.together(lambda: door.listen(distributed.address()) if leads else None)
    token = distributed.broadcast_object(new_token())
    address = None if listener is None else listener.getsockname()[:2]
    told = distributed.allgather_object((address, distributed.process()))
    service = RowService(engine, distributed.rank(), listener, token, silence_seconds(), tls)
    service.start([Leader(*each) for each in told])
    return service


def leave(engine: Engine, *, exits: bool) -> None:
    """Ends this rank's reads; a leader then serves its host's rows until nobody can need them.

    One rank may go on alone after training, to evaluate or to export: its lookups need the leaders
    of all hosts. So leaders leave a job last, once the ranks of other hosts have left or died, and
    those of their own host too. Embedding nodes serve until rank 0 leaves, so it is the last then.

    Args:
        engine: Of this rank, with its store open.
        exits: Whether Python exits, so that this rank ends its part in Horovod too: another that
            still calls a collective gets an error, instead of waiting while this one waits for it.
    """
    engine.end_reads()
    # Horovod answers these until it ends.
    here, leads = distributed.here(), distributed.local_rank() == 0
    neighbours = () if engine.nodes else range(1, distributed.local_size())
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
                "%s has ended, and waits for %d ranks that may still read rows",
                here,
                waits,
            )
            warning_at = float("inf")
        time.sleep(_LOOK_SECONDS)
