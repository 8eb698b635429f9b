"""A job's start and end: Horovod, devices, threads, and the store that this host's ranks share."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import secrets
import socket

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._version import __version__
from tfhybrid.config import log_level, shm_directory, silence_seconds
from tfhybrid.errors import ConfigError, NotInitializedError, TfhybridError
from tfhybrid.store import lifelines, native
from tfhybrid.store.lifelines import Lifelines
from tfhybrid.store.watch import Watch

_log = logging.getLogger("tfhybrid.job")


@dataclasses.dataclass(frozen=True)
class Job:
    """The running job, as one rank sees it."""

    name: str
    seed: int
    hosts: tuple[int, ...]  # the host of each rank
    is_leader: bool

    @property
    def host(self) -> int:
        """The host of this rank."""
        return self.hosts[distributed.rank()]

    @property
    def several_hosts(self) -> bool:
        """Whether there are tables on other hosts to keep equal."""
        return len(set(self.hosts)) > 1


_current: Job | None = None
_watch: Watch | None = None


def current_job() -> Job:
    """Returns the running job.

    Raises:
        NotInitializedError: `tfhybrid.init()` was not called.
    """
    if _current is None:
        raise NotInitializedError(
            "Call tfhybrid.init() first: it starts Horovod and opens the store of the tables."
        )
    return _current


def init(job: str | None = None, *, seed: int = 0) -> None:
    """Starts the job: Horovod, a GPU and a share of threads per rank, a fresh store per host.

    Call it once at the top of the script, on every rank; a second call with the same arguments does
    nothing. Without `horovodrun` it starts a job of one rank.

    Args:
        job: Name of the job, 1 to 64 letters, digits, '.', '_' or '-'; equal on all ranks. Two
            living jobs of one name on a host are refused. Defaults to a random one.
        seed: Seed of all initial values, 0 to 2^64 - 1; equal on all ranks.

    Raises:
        NameTakenError: A job of that name runs on this host; the message names its processes.
        ConfigError: Ranks gave different arguments, run different versions, or an argument cannot
            be.
        StoreError: The ranks of a host do not share memory, or cannot reach rank 0.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> tfhybrid.size()
    1
    """
    global _current, _watch
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ConfigError(f"seed is a whole number from 0 to 2^64 - 1. Received: seed={seed!r}")
    if _current is not None:
        if seed != _current.seed or job not in (None, _current.name):
            raise ConfigError(
                f"This process already runs job '{_current.name}' with seed {_current.seed}. "
                f"Received: job={job!r}, seed={seed}"
            )
        return
    distributed.start()
    _set_up_logging()
    _share_devices()
    _check_arguments(job, seed)
    hosts = distributed.find_hosts()
    name, tokens = distributed.broadcast_object(
        (secrets.token_hex(4) if job is None else job, [secrets.randbits(64) for _ in hosts])
    )
    description = f"rank {distributed.rank()} (pid {os.getpid()} on {socket.gethostname()})"
    _open_store(name, tokens[hosts[distributed.rank()]], description)
    _watch = _start_watch(description)
    _current = Job(name, seed, hosts, distributed.local_rank() == 0)
    atexit.register(shutdown)
    _log.info(
        "tfhybrid %s: job %s, %d rank(s) on %d host(s), store %s with "
        "%.1f GB free, seed %d, TensorFlow %s, Horovod %s",
        __version__,
        name,
        len(hosts),
        len(set(hosts)),
        shm_directory(),
        native.available_bytes(shm_directory()) / 1e9,
        seed,
        tf.__version__,
        distributed.horovod_version(),
    )


def shutdown() -> None:
    """Ends the job in this process and closes its store; the last process removes it.

    Layers and models of the job are unusable afterwards. Called by itself when Python exits.
    """
    global _current, _watch
    _current = None
    if _watch is not None:
        _watch.leave()
        _watch = None
    native.close_store()
    atexit.unregister(shutdown)


def _set_up_logging() -> None:
    """Rank 0 alone talks; where the application configured no logging, to standard error."""
    logger = logging.getLogger("tfhybrid")
    logger.setLevel(log_level() if distributed.rank() == 0 else logging.WARNING)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def _share_devices() -> None:
    """Gives each rank of a host its GPU and its share of the processors."""
    ranks = distributed.local_size()
    try:
        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            gpu = gpus[distributed.local_rank() % len(gpus)]
            tf.config.set_visible_devices(gpu, "GPU")
            tf.config.experimental.set_memory_growth(gpu, True)
        if ranks > 1 and tf.config.threading.get_intra_op_parallelism_threads() == 0:
            processors = len(os.sched_getaffinity(0))
            tf.config.threading.set_intra_op_parallelism_threads(max(1, processors // ranks))
    except RuntimeError as error:
        _log.warning(
            "TensorFlow was in use before tfhybrid.init(), so devices and threads stay as they "
            "are (%s). Call init() first.",
            error,
        )


def _check_arguments(job: str | None, seed: int) -> None:
    here = f"rank {distributed.rank()} on {socket.gethostname()}"
    mine = {"version of tfhybrid": __version__, "job": job, "seed": seed}
    (first, wanted), *others = distributed.allgather_object((here, mine))
    for what, value in wanted.items():
        differing = [f"{given[what]!r} on {rank}" for rank, given in others if given[what] != value]
        if differing:
            raise ConfigError(
                f"All ranks have the same {what}. Received: {value!r} on {first}, but "
                f"{', '.join(differing)}"
            )


def _open_store(job: str, token: int, description: str) -> None:
    """Opens the store on all ranks, leaders first; where one fails, all raise."""
    local_rank = distributed.local_rank()

    def open_as(leader: bool) -> None:
        if (local_rank == 0) == leader:
            reclaimed = native.open_store(shm_directory(), job, local_rank, description, token)
            for line in reclaimed.splitlines():
                _log.warning("Removed the store of a dead job, %s", line)

    try:
        distributed.together(lambda: open_as(leader=True))
        distributed.together(lambda: open_as(leader=False))
    except TfhybridError:
        native.close_store()
        raise


def _start_watch(description: str) -> Watch | None:
    """Starts to watch the other ranks; where a lifeline cannot be made, all raise."""
    if distributed.size() == 1:
        return None
    names = distributed.allgather_object(description)
    try:
        links = _connect_to_rank_0()
    except TfhybridError:
        native.close_store()
        raise
    neighbours = [r for r in range(distributed.local_size()) if r != distributed.local_rank()]
    lines = Lifelines({link: names[rank] for rank, link in links.items()}, silence_seconds())
    return Watch(description, neighbours, lines)


def _connect_to_rank_0() -> dict[int, socket.socket]:
    """Returns this process's connections: those of rank 0 with all others, by rank."""
    rank, silence = distributed.rank(), silence_seconds()
    listener = distributed.together(
        lambda: lifelines.listen(distributed.address()) if rank == 0 else None
    )
    address, token = distributed.broadcast_object(
        (listener.getsockname()[:2], secrets.token_hex(16)) if listener else None
    )
    if listener is None:
        return distributed.together(lambda: {0: lifelines.dial(address, token, rank, silence)})
    with listener:
        others = range(1, distributed.size())
        return distributed.together(lambda: lifelines.accept(listener, token, others, silence))


def _leave_to_parent() -> None:
    """In a forked child: the job is the parent's, who alone leaves it."""
    global _watch
    atexit.unregister(shutdown)
    if _watch is not None:
        _watch.abandon()
        _watch = None


os.register_at_fork(after_in_child=_leave_to_parent)
