"""Start and end of a job: Horovod, devices, threads, and the store shared by a host's ranks."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import os
import secrets
import sys

import tensorflow as tf

from tfhybrid import _horovod, distributed
from tfhybrid._ending import end_generators
from tfhybrid._keras import VERSION as KERAS_VERSION
from tfhybrid._version import __version__
from tfhybrid.core import allocator, native
from tfhybrid.core.engine import Engine
from tfhybrid.errors import ConfigError, NotInitializedError
from tfhybrid.job import (
    last_words,
    node_access,
    rank_devices,
    rank_encryption,
    row_links,
    store_opening,
    timeline,
    watch,
)
from tfhybrid.job.resumption import Resumption
from tfhybrid.job.row_access import NodeAccess, RowAccess
from tfhybrid.job.waits import Board
from tfhybrid.job.watch import Watch
from tfhybrid.settings import log_level, shm_directory

_log = logging.getLogger("tfhybrid.job")


@dataclasses.dataclass
class Room:
    """Memory for tables, on the host that had the least when the job started.

    Args:
        bytes: Number of bytes.
        planned: Number of bytes of the tables that were placed by `placement="auto"`. Default 0.
    """

    bytes: int
    planned: int = 0

    def plan(self, size: int) -> None:
        """Counts the bytes of another table.

        Args:
            size: Number of bytes.
        """
        self.planned += size


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """Running job, as seen by one rank.

    Args:
        name: Name of the job.
        seed: Seed of all initial values.
        access: Access of this rank to the rows of its tables.
        is_leader: True on the first rank of each host.
        resumption: Choice between the stores of a killed run and new ones. Default: `None`, the
            job was started without `resume="memory"`.
        watch: Thread that notices the death of other ranks. Default: `None`, a job of one rank.
        room: Memory for tables. Default: none.
        devices: Names of this rank's devices.
    """

    name: str
    seed: int
    access: RowAccess
    is_leader: bool
    resumption: Resumption | None = None
    watch: Watch | None = None
    room: Room = dataclasses.field(default_factory=lambda: Room(0))
    devices: tuple[str, ...] = ()

    @property
    def engine(self) -> Engine:
        """Engine of this rank."""
        return self.access.engine

    @property
    def hosts(self) -> tuple[int, ...]:
        """Host number of each rank, in the order of ranks."""
        return self.engine.hosts

    @property
    def several_hosts(self) -> bool:
        """True if the ranks of the job are on more than one host."""
        return len(set(self.hosts)) > 1

    @distributed.call("the start without the memory of the last run")
    def discard_recovered(self) -> None:
        """Replaces the stores that a killed run left by new ones.

        Every rank must call it, in a job with `resume="memory"`.

        Raises:
            TfhybridError: On all ranks: one of them cannot open a new store.
        """
        assert self.resumption is not None
        # A closed store looks like a rank that leaves.
        with self.watch.paused() if self.watch else contextlib.nullcontext():
            distributed.barrier()
            self.resumption.discard()


_current: Job | None = None


def current_job() -> Job:
    """Returns the job that `tfhybrid.init` has started in this process. Any thread may call it.

    Raises:
        NotInitializedError: `tfhybrid.init()` was not called.
    """
    if _current is None:
        raise NotInitializedError(
            "Call tfhybrid.init() first: it starts Horovod and opens the store of the tables."
        )
    return _current


def devices() -> tuple[str, ...]:
    """Returns the names of this rank's devices, for `tf.device`.

    Their number is `devices_per_rank` of `init`. They are GPUs, such as `("GPU:0", "GPU:1")`, or
    logical CPU devices on hosts without GPUs.

    Layers of one model can use several of them (model parallel), while ranks stay data parallel. A
    layer's variables are on the device where it is built; it computes where it is called. Tables
    stay on the host.

    Raises:
        NotInitializedError: `tfhybrid.init()` was not called.

    Example:

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> with tf.device(tfhybrid.devices()[-1]):
    ...     top = tf.Variable(tf.zeros((64, 1)))
    """
    return current_job().devices


def init(
    job: str | None = None,
    *,
    seed: int = 0,
    resume: str | None = None,
    devices_per_rank: int = 1,
) -> None:
    """Starts the job: Horovod, GPUs and threads of this rank, and a new store per host.

    Call it once at the top of the script, on every rank. A second call with the same arguments does
    nothing. Without `horovodrun` it starts a job of one rank.

    With `resume="memory"` the job keeps its dense state beside the tables at every step. When it is
    started again after a crash, `tfhybrid.checkpoint.restore(model, directory)` resumes from memory
    at exactly that step if all hosts still hold the state and nothing was changed. Otherwise it
    restores the checkpoint and logs why. Call `restore` before the first step; until then the
    tables do not exist.

    Args:
        job: Name of the job, 1 to 64 letters, digits, '.', '_' or '-'; equal on all ranks. Two
            running jobs on a host cannot have the same name. Defaults to a random name.
        seed: Seed of all initial values, 0 to 2^64 - 1; equal on all ranks.
        resume: `"memory"` to resume after a crash, see above; the job needs a name. Default:
            `None`, every run starts from scratch.
        devices_per_rank: Number of GPUs of each rank, for layers that are placed by `tf.device`;
            see `devices`. On hosts without GPUs, the number of logical CPU devices. Default: 1.

    Raises:
        NameTakenError: A job of this name runs on the host; the message names its processes.
        ConfigError: Ranks have different arguments or versions, an argument or an environment
            variable is invalid, a host has too few GPUs, or its name does not resolve.
        StoreError: The ranks of a host do not share memory, or cannot reach rank 0.
        OSError: Rank 0, or the leader of one of several hosts, finds no address to listen on.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> tfhybrid.size()
    1
    """
    global _current
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ConfigError(
            f"seed must be a whole number from 0 to 2^64 - 1. Received: seed={seed!r}"
        )
    if resume not in (None, "memory") or (resume is not None and job is None):
        raise ConfigError(
            "resume must be None or 'memory', and resume='memory' needs a job name, by which the "
            f"next run finds the store. Received: job={job!r}, resume={resume!r}"
        )
    rank_devices.check_number(devices_per_rank)
    if _current is not None:
        resumes, has = _current.resumption is not None, len(_current.devices)
        arguments = (seed, bool(resume), devices_per_rank)
        if arguments != (_current.seed, resumes, has) or job not in (None, _current.name):
            raise ConfigError(
                f"This process already runs job '{_current.name}' with seed {_current.seed}, "
                f"{resumes=}, devices_per_rank={has}. Received: job={job!r}, seed={seed}, "
                f"resume={resume!r}, devices_per_rank={devices_per_rank}"
            )
        return
    _current = _start(job, seed, resume, devices_per_rank)
    atexit.register(_exit)
    last_words.shorten(distributed.rank(), _another_rank_ends, _exit)
    _log.info(
        "tfhybrid %s: job %s, %d rank(s) on %d host(s), store %s with "
        "%.1f GB free, seed %d, TensorFlow %s, Keras %s, Horovod %s",
        __version__,
        _current.name,
        len(_current.hosts),
        len(set(_current.hosts)),
        shm_directory(),
        native.available_bytes(shm_directory()) / 1e9,
        seed,
        tf.__version__,
        KERAS_VERSION,
        distributed.horovod_version(),
    )
    gpus = tf.config.list_physical_devices("GPU")
    if distributed.rank() == 0:
        _warn_of_horovod(len(gpus))
    processors, ranks = len(os.sched_getaffinity(0)), distributed.local_size()
    if not gpus and 1 < ranks > processors // 2:
        _log.info(
            "%d ranks share %d processors: fewer ranks, of two threads or more each, train faster",
            *(ranks, processors),
        )
    if _current.resumption is not None:
        absence = _current.resumption.absence
        _log.info("Memory of the last run: %s", absence or "tables on all hosts")


def _warn_of_horovod(gpus: int) -> None:
    """Logs what is wrong with the installed Horovod, for a host with so many GPUs."""
    foreign = _horovod.foreign(distributed.horovod_version())
    if foreign:
        _log.warning(
            "Horovod: %s. tfhybrid is tested with %s only; `tfhybrid doctor` says how to get it.",
            *(foreign, _horovod.VERSION),
        )
    if gpus and not distributed.built_for_gpus():
        _log.warning(
            "TensorFlow uses %d GPU(s), but this Horovod was not built for GPUs: every step copies "
            "the dense gradients to main memory and back. `tfhybrid doctor` says how to fix it.",
            gpus,
        )


@distributed.call("tfhybrid.init")
def _start(name: str | None, seed: int, resume: str | None, devices_per_rank: int) -> Job:
    _set_up_logging()
    allocator.keep_freed_memory()
    timeline.start()
    watching = watch.start()
    try:
        distributed.start()
        _set_up_logging()  # again, because under some launchers only Horovod knows the rank
        if watching is not None:
            watching.horovod_has_started()
        mine = rank_devices.assign_devices(devices_per_rank)
        arguments = {"job": name, "seed": seed, "resume": resume, "devices_per_rank": len(mine)}
        distributed.check_same({"version of tfhybrid": __version__, **arguments})
        watching = watch.start_with_horovod(watching)
        if watching is not None:
            watching.meet()
        return _open(name, seed, resume, watching, mine)
    except BaseException:
        if watching is not None:
            watching.leave(failed=True)
        raise


def _open(
    name: str | None,
    seed: int,
    resume: str | None,
    watching: Watch | None,
    mine: tuple[str, ...],
) -> Job:
    """Opens the stores of a job whose ranks are connected."""
    hosts = distributed.find_hosts()
    name = distributed.broadcast_object(secrets.token_hex(4) if name is None else name)
    nodes = node_access.named()
    tls = rank_encryption.start() if nodes is not None or len(set(hosts)) > 1 else None
    of_nodes = None
    if nodes is not None:
        of_nodes = node_access.connect(nodes, name, hosts, tls, resumes=resume is not None)
    engine = of_nodes.engine if of_nodes else Engine(hosts, hosts[distributed.rank()])
    resumption = Resumption(engine, name) if resume else None
    if resumption is None:
        store_opening.open_fresh(engine, name)
    if watching is not None:
        names = distributed.allgather_object(distributed.process())
        neighbours = [r for r in range(distributed.local_size()) if r != distributed.local_rank()]
        leaders = {name: names[hosts.index(host)] for name, host in zip(names, hosts, strict=True)}
        board = Board(names, leaders) if distributed.rank() == 0 else None
        watching.attach(engine, neighbours, board)
    try:
        rows = row_links.start(engine, tls)
        room = min(distributed.allgather_object(_room(name)))
    except BaseException:
        engine.close_store()
        raise
    return Job(
        name,
        seed,
        NodeAccess(*of_nodes, rows) if of_nodes else RowAccess(engine, rows),
        is_leader=distributed.local_rank() == 0,
        resumption=resumption,
        watch=watching,
        room=Room(room),
        devices=mine,
    )


def _room(job: str) -> int:
    """Returns the bytes that the job's tables can use on this host, including existing tables."""
    stores = [fields for kind, *fields in native.report_stores(shm_directory()) if kind == "store"]
    taken = sum(int(size) for name, _, size, _ in stores if name == job)
    return native.available_bytes(shm_directory()) + taken


def shutdown() -> None:
    """Ends the job in this process and closes its store; the last process removes the store.

    Layers and models of the job are unusable afterwards. Python calls it at exit. Without a running
    job it does nothing.

    With sharded tables on several hosts, the first rank of each host waits until all others have
    left, because they may still read its rows. With embedding nodes, rank 0 waits. A job with
    `resume="memory"` that ends with an exception keeps its store for the next run.
    """
    _end(failed=False)


def _exit() -> None:
    try:
        end_generators()  # before the store, which they may read
    finally:  # after a second Ctrl-C too
        # Python sets `last_value` when it prints the exception that ends the script.
        _end(failed=hasattr(sys, "last_value"), exits=True)


def _end(*, failed: bool, exits: bool = False) -> None:
    global _current
    job, _current = _current, None
    if job is not None:
        timeline.write(distributed.rank(), distributed.here())
        if job.watch is not None:
            job.watch.leave(failed=failed)
        if not failed:
            job.access.leave(exits=exits)
        job.access.stop()
        job.engine.close_store(leave=failed and job.resumption is not None)
        job.access.end()
    atexit.unregister(_exit)


def _another_rank_ends(seconds: float) -> bool:
    """Waits until another rank of the running job has ended; returns whether one has."""
    watching = None if _current is None else _current.watch
    return watching is not None and watching.wait_for_news(seconds)


def _set_up_logging() -> None:
    """Lets only rank 0 log; to standard error unless the application has configured logging."""
    logger = logging.getLogger("tfhybrid")
    logger.setLevel(log_level() if distributed.rank_numbers().rank == 0 else logging.WARNING)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def _leave_to_parent() -> None:
    """Forgets the job in a forked child, because the parent owns it and will end it."""
    global _current
    atexit.unregister(_exit)
    if _current is None:
        return
    if _current.watch is not None:
        _current.watch.abandon()
    _current.access.abandon()
    _current = dataclasses.replace(_current, watch=None)


os.register_at_fork(after_in_child=_leave_to_parent)
