"""Opening of the stores of a job's hosts: new stores, or those of a killed run."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from tfhybrid import distributed
from tfhybrid.core.engine import Engine
from tfhybrid.core.store_token import RUN_BITS, host_of, run_of, token_of
from tfhybrid.errors import NameTakenError, TfhybridError
from tfhybrid.settings import shm_directory

Result = TypeVar("Result")

_log = logging.getLogger("tfhybrid.job")

_DYING_SECONDS = 10.0  # time for the processes of a killed run to disappear


def open_fresh(engine: Engine, job: str) -> None:
    """Opens a new store on all ranks, leaders first. Every rank must call it.

    Args:
        engine: Engine of this rank.
        job: Name of the job.

    Raises:
        TfhybridError: On all ranks: one of them cannot open its store. No store is open then.
    """
    run = distributed.broadcast_object(secrets.randbits(RUN_BITS))
    token = token_of(run, engine.hosts[distributed.rank()])
    try:
        distributed.together(
            lambda: _open(engine, job, token) if distributed.local_rank() == 0 else None
        )
        _attach(engine, job, token)
    except TfhybridError:
        engine.close_store()
        raise


def recover(engine: Engine, job: str) -> str | None:
    """Recovers the stores that a killed run of the job left, all at the same version.

    Every rank must call it. Hosts that died one update behind the others apply that update. If a
    host has no usable store, all stores are removed.

    Args:
        engine: Engine of this rank.
        job: Name of the job.

    Returns:
        `None` if the stores are open, otherwise the reason why the job cannot resume.

    Raises:
        NameTakenError: On the leader: the job still runs.
        StoreError: On all ranks: another rank failed, or a rank cannot attach to its store.
    """
    is_leader = distributed.local_rank() == 0
    mine = distributed.together(lambda: _recover(engine, job) if is_leader else None)
    everyone = distributed.allgather_object(mine)
    stores = {rank: store for rank, store in enumerate(everyone) if store is not None}
    why_not = (
        _mismatch(list(stores.values()))
        or _catch_up(engine, stores)
        or _difference(engine, sorted(stores))
    )
    if why_not is not None:
        engine.close_store()  # removes it, too
        return why_not
    distributed.together(lambda: engine.forget_updates() if is_leader else None)
    token = [store.token for rank, store in stores.items() if rank <= distributed.rank()][-1]
    _attach(engine, job, token)
    return None


@dataclasses.dataclass(frozen=True)
class _HostStore:
    """Store that a leader recovered on its host, or the reason why there is none."""

    token: int = 0
    versions: dict[str, int] = dataclasses.field(default_factory=dict)
    failure: str | None = None


def _open(engine: Engine, job: str, token: int) -> None:
    reclaimed = engine.open_store(
        shm_directory(), job, distributed.local_rank(), distributed.process(), token
    )
    for line in reclaimed.splitlines():
        _log.warning(
            "Removed the store of a dead job, %s. It can resume from checkpoints alone", line
        )


def _attach(engine: Engine, job: str, token: int) -> None:
    distributed.together(
        lambda: _open(engine, job, token) if distributed.local_rank() > 0 else None
    )


def _recover(engine: Engine, job: str) -> _HostStore:
    deadline = time.monotonic() + _DYING_SECONDS
    while True:
        try:
            token = engine.recover_store(shm_directory(), job, distributed.process())
            return _HostStore(token, engine.store_versions())
        except NameTakenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        except TfhybridError as error:  # a damaged store can cause any of our errors
            return _HostStore(failure=f"{socket.gethostname()}: {error}")


def _mismatch(stores: list[_HostStore]) -> str | None:
    """Returns why the stores do not belong together, or `None` if they do."""
    for store in stores:
        if store.failure is not None:
            return store.failure
    runs = {run_of(store.token) for store in stores}
    hosts = [host_of(store.token) for store in stores]
    if len(runs) > 1:
        return "the hosts hold tables of different runs of the job"
    if hosts != list(range(len(stores))):
        return f"the hosts came in another order, or are different hosts: {hosts}"
    if len({tuple(store.versions) for store in stores}) > 1:
        return "the hosts hold different tables"
    return None


def _catch_up(engine: Engine, stores: dict[int, _HostStore]) -> str | None:
    """Brings hosts that are behind to the newest version; returns why that failed, or `None`."""
    newest = {
        table: max(store.versions[table] for store in stores.values())
        for table in next(iter(stores.values())).versions
    }
    behind = [rank for rank, store in stores.items() if store.versions != newest]
    ahead = [rank for rank in stores if rank not in behind]
    if not behind:
        return None
    if not ahead:
        return "each host lacks an update that another one has"
    failure, updates = distributed.broadcast_object(
        _attempt(engine.last_updates) if distributed.rank() == ahead[0] else None, ahead[0]
    )
    if failure is None and distributed.rank() in behind:
        failure, _ = _attempt(lambda: engine.roll_forward(updates))
        if failure is None and engine.store_versions() != newest:
            failure = "updates are missing"
    for rank, reason in enumerate(distributed.allgather_object(failure)):
        if reason is not None:
            return f"rank {rank} cannot catch up with the other hosts: {reason}"
    _log.info(
        "%d of %d hosts died one update behind; they have caught up", len(behind), len(stores)
    )
    return None


def _difference(engine: Engine, leaders: list[int]) -> str | None:
    """Returns which tables differ between hosts at the same version, or `None` if none do.

    They differ if memory was changed after the run was killed.
    """
    if len(leaders) == 1:
        return None
    leads = distributed.rank() in leaders
    mine = (distributed.here(), engine.store_digests()) if leads else None
    everyone = distributed.allgather_object(mine)
    (first_name, first), *others = [everyone[rank] for rank in leaders]
    for name, digests in others:
        different = [file for file in first if digests[file] != first[file]]
        if different:
            return f"{first_name} and {name} have different rows in {different} at the same version"
    return None


def _attempt(work: Callable[[], Result]) -> tuple[str | None, Result | None]:
    """Runs `work`; returns the error text and `None`, or `None` and the result."""
    try:
        return None, work()
    except TfhybridError as error:
        return str(error), None
