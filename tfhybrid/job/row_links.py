"""Tells the ranks of a job on several hosts where the rows of other hosts are served."""

from __future__ import annotations

from tfhybrid import distributed
from tfhybrid.config import silence_seconds
from tfhybrid.core.engine import Engine
from tfhybrid.nodes import door
from tfhybrid.nodes.row_service import Leader, RowService, new_token
from tfhybrid.nodes.tls import Tls


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
