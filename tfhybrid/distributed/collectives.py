"""Collectives of Horovod. Only this room imports `horovod`.

Horovod's own Keras wrappers fail on Keras 3; its collectives do not. All ranks must call the same
collectives in the same order.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tfhybrid import _horovod, settings

try:
    import horovod
    import horovod.tensorflow as hvd
except ModuleNotFoundError as error:
    if error.name != "horovod":
        raise
    raise ModuleNotFoundError(
        f"tfhybrid trains over Horovod, which is not installed: {_horovod.INSTALL}",
        name="horovod",
    ) from None
import cloudpickle
import numpy as np
import tensorflow as tf

from tfhybrid.distributed.collective_calls import exchange
from tfhybrid.errors import ConfigError, StoreError

Result = TypeVar("Result")

_hosts: tuple[int, ...] = (0,)
_leaders: hvd.ProcessSet = hvd.global_process_set


def start() -> None:
    """Starts Horovod, if it is not running. Without `horovodrun` there is one rank.

    Without GPUs, Horovod gets a longer cycle time, unless the user has set one.

    Raises:
        ConfigError: The name of this host does not resolve. Gloo would abort the process.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise ConfigError(
            "Horovod must be able to look up this host by its own name: add a line `127.0.0.1 "
            f"NAME` to /etc/hosts. Received: {name!r}, {error}"
        ) from error
    if not tf.config.list_physical_devices("GPU"):
        settings.set_long_cycle()
    hvd.init()


def has_long_cycle() -> bool:
    """Returns whether Horovod's cycle time is too long for a step to wait for a cycle."""
    return size() > 1 and settings.has_cycle_of_one_host()


def stop() -> None:
    """Stops Horovod on this rank. Later collectives fail on the other ranks."""
    hvd.shutdown()


def find_hosts() -> tuple[int, ...]:
    """Finds the host of each rank. On several hosts, gives the leaders their own process set.

    Every rank must call it, after devices and threads are configured: it initializes TensorFlow.

    Returns:
        Number of each rank's host, from 0; the ranks of a host are consecutive.

    Raises:
        ConfigError: Horovod was started without support for process sets.
    """
    global _hosts, _leaders
    # The leader is the first rank of its host. Horovod's cross_rank is no use here: if hosts have
    # different numbers of ranks, it starts at 0 again for each local rank.
    first = [int(local_rank == 0) for local_rank in allgather_object(local_rank())]
    _hosts = tuple(host - 1 for host in itertools.accumulate(first))
    leaders = [rank for rank, is_first in enumerate(first) if is_first]
    # With one rank per host, all are leaders, and Horovod refuses a second set of the same ranks.
    if 1 < len(leaders) < size() and _leaders is hvd.global_process_set:
        try:
            _leaders = hvd.add_process_set(leaders)
        except ValueError as error:
            raise ConfigError(
                "On several hosts, import tfhybrid before Horovod starts, or start it with "
                f"HOROVOD_DYNAMIC_PROCESS_SETS=1. Received: {error}"
            ) from error
    return _hosts


def hosts() -> tuple[int, ...]:
    """Returns the host number of each rank, as `find_hosts` found it; `(0,)` before its call."""
    return _hosts


def rank() -> int:
    """Returns this process's number among all ranks, 0 to `size() - 1`; 0 before the start."""
    return int(hvd.rank()) if hvd.is_initialized() else 0


def size() -> int:
    """Returns the number of ranks; 1 before Horovod's start."""
    return int(hvd.size()) if hvd.is_initialized() else 1


def here() -> str:
    """Returns this rank and its host, for messages."""
    return f"rank {rank()} on {socket.gethostname()}"


def process() -> str:
    """Returns this rank, its process and its host, for messages."""
    return f"rank {rank()} (pid {os.getpid()} on {socket.gethostname()})"


def local_rank() -> int:
    """Returns this process's number on its host, 0 for the leader; 0 before Horovod's start."""
    return int(hvd.local_rank()) if hvd.is_initialized() else 0


def local_size() -> int:
    """Returns the number of ranks on this host; 1 before Horovod's start."""
    return int(hvd.local_size()) if hvd.is_initialized() else 1


def cross_rank() -> int:
    """Returns the number of this host; 0 before Horovod's start.

    It counts only hosts that have a rank with this local rank, so it is the same as in `hosts` only
    if all hosts have as many ranks.
    """
    return int(hvd.cross_rank()) if hvd.is_initialized() else 0


def cross_size() -> int:
    """Returns the number of hosts that have a rank with this local rank; 1 before the start."""
    return int(hvd.cross_size()) if hvd.is_initialized() else 1


def address() -> str:
    """Returns the address at which other hosts can reach this one.

    It is the local address of a connection to the host of `horovodrun`.

    Raises:
        OSError: The name of the host cannot be resolved, or there is no route to it.
    """
    launcher = settings.launcher_host()
    launcher = socket.gethostname() if launcher is None else launcher
    family, kind, _, _, target = socket.getaddrinfo(launcher, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # sends no packet
        return str(probe.getsockname()[0])


def horovod_version() -> str:
    """Returns the version of the installed Horovod."""
    return str(horovod.__version__)


def built_for_gpus() -> bool:
    """Returns whether the installed Horovod can use GPUs."""
    return bool(hvd.cuda_built() or hvd.rocm_built())


def barrier() -> None:
    """Waits until all ranks have called it. Every rank must call it.

    Raises:
        ConfigError: On all ranks, if the ranks are in different calls (`collective_calls`).
        Exception: Another rank has ended; an error of Horovod or TensorFlow.
    """
    allgather_object(None)


def broadcast_object(value: Any, root: int = 0) -> Any:
    """Returns the value of rank `root` on every rank. Every rank must call it.

    Args:
        value: Value of rank `root`, which must be picklable; ignored on other ranks.
        root: Number of the rank whose value is sent. Default 0.

    Raises:
        ConfigError: On all ranks, if the ranks are in different calls (`collective_calls`).
        Exception: Another rank has ended; an error of Horovod or TensorFlow.
    """
    if size() == 1:
        return value
    if rank() == root:
        exchange(cloudpickle.dumps(value))
        return value
    return cloudpickle.loads(exchange(b"")[root])


def allgather_object(value: Any) -> list[Any]:
    """Returns the values of all ranks, in the order of ranks. Every rank must call it.

    Args:
        value: Value of this rank, which must be picklable.

    Raises:
        ConfigError: On all ranks, if the ranks are in different calls (`collective_calls`).
        Exception: Another rank has ended; an error of Horovod or TensorFlow.
    """
    if size() == 1:
        return [value]
    return [cloudpickle.loads(content) for content in exchange(cloudpickle.dumps(value))]


def allgather(array: np.ndarray) -> np.ndarray:
    """Returns the arrays of all ranks, concatenated along axis 0 in the order of ranks.

    Every rank must call it.

    Args:
        array: Array with at least one axis. Only the length of the first axis may differ between
            ranks.

    Raises:
        ConfigError: On all ranks, if the ranks are in different calls (`collective_calls`).
        ValueError: On all ranks: the arrays differ in more than the length of the first axis.
        Exception: Another rank has ended; an error of Horovod or TensorFlow.
    """
    if size() == 1:
        return array
    return np.concatenate(allgather_object(array))


def together(work: Callable[[], Result]) -> Result:
    """Runs `work` on every rank, and raises on all ranks if it fails on one.

    Otherwise a rank that fails would leave the others waiting in their next collective.

    Args:
        work: Function to call. Every rank must call `together`.

    Returns:
        The result of `work` on this rank.

    Raises:
        Exception: `work` failed on this rank. Has a note for each other rank that failed.
        StoreError: `work` failed on other ranks only; lists them, one per line.
    """
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:  # sent to all ranks, raised below
        failure = error
    texts = allgather_object(failure and f"{here()}: {type(failure).__name__}: {failure}")
    failures = [text for other, text in enumerate(texts) if text and other != rank()]
    if failure is not None:
        for text in failures:
            failure.add_note(text)
        raise failure
    if failures:
        raise StoreError("\n".join(failures))
    return result


def gather_messages(message: tf.Tensor, name: str) -> tf.Tensor:
    """Concatenates the messages of all ranks, in a graph.

    Args:
        message: Message of this rank, `[words]`; the number of words may differ between ranks.
        name: Name of the collective: equal on all ranks, and unique among those in flight.

    Returns:
        The messages in the order of ranks, `[words]`.
    """
    return hvd.allgather(message, name=name, ignore_name_scope=True) if size() > 1 else message


def gather_from_hosts(message: tf.Tensor, name: str) -> tf.Tensor:
    """Concatenates the messages of all leaders in the order of hosts, in the leaders' graph.

    Args:
        message: Message of this leader, `[words]`; the number of words may differ.
        name: Name of the collective: equal on all leaders, and unique among those in flight.

    Returns:
        The messages, `[words]`.
    """
    return hvd.allgather(message, name=name, ignore_name_scope=True, process_set=_leaders)


def scatter_to_hosts(parts: tf.Tensor, splits: tf.Tensor, name: str) -> tf.Tensor:
    """Sends each leader its part of a message, in the leaders' graph.

    Every leader must run it, in a job on several hosts only. It fails with a TensorFlow error if
    another leader has ended.

    Args:
        parts: Parts of the message, `[words]`, concatenated in the order of hosts.
        splits: Length of each part, int32 `[hosts]`.
        name: Name of the collective: equal on all leaders, and unique among those in flight.

    Returns:
        The received parts, concatenated in the order of hosts.
    """
    received, _ = hvd.alltoall(
        parts, splits, name=name, ignore_name_scope=True, process_set=_leaders
    )
    return received


def total(tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns the sums of tensors over ranks, in a graph, as one group. Every rank must build it.

    Args:
        tensors: Tensors in the same order and with the same shapes on all ranks.
        name: Name of the collective: equal on all ranks, and unique among those in flight. It must
            be given, because Horovod's default depends on layer names. These differ if a rank has
            built another model before, and the ranks would then wait forever.
    """
    if size() == 1:
        return list(tensors)
    return _grouped_sum(tensors, name, hvd.global_process_set)


def total_of_hosts(tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns the sums of tensors over the leaders of hosts, in the leaders' graph, as one group.

    Args:
        tensors: Tensors in the same order and with the same shapes on all leaders.
        name: Name of the collective: equal on all leaders, and unique among those in flight.
    """
    return _grouped_sum(tensors, name, _leaders)


def _grouped_sum(tensors: Sequence[tf.Tensor], name: str, ranks: hvd.ProcessSet) -> list[tf.Tensor]:
    """Returns the sums over some ranks. Groups by dtype, because Horovod cannot mix dtypes."""
    sums: dict[int, tf.Tensor] = {}
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        indices = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
        group = hvd.grouped_allreduce(
            [tensors[index] for index in indices],
            op=hvd.Sum,
            name=f"{name}.{dtype.name}",
            ignore_name_scope=True,
            process_set=ranks,
        )
        sums.update(zip(indices, group, strict=True))
    return [sums[index] for index in range(len(tensors))]
