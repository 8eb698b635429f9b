"""Horovod's collectives. This is the only module that imports `horovod`.

Horovod's own Keras wrappers fail on Keras 3; its collectives do not.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

try:
    import horovod
    import horovod.tensorflow as hvd
except ModuleNotFoundError as error:
    if error.name != "horovod":
        raise
    raise ModuleNotFoundError(
        "tfhybrid trains over Horovod, which is not installed. In tfhybrid's source tree, "
        "scripts/horovod compiles it for this environment's TensorFlow",
        name="horovod",
    ) from None
import numpy as np
import tensorflow as tf

from tfhybrid.errors import ConfigError, StoreError

Result = TypeVar("Result")

# Milliseconds. In each cycle all ranks exchange which tensors are ready, also if none are, and Gloo
# polls while a rank waits: Horovod's default of 1 ms takes a tenth of a step's processor time, or
# more. On one host no step needs Horovod (`optimizers/dense_step.py`).
_CYCLE_TIME, _CYCLE_TIME_ON_ONE_HOST = "5", "20"

_hosts: tuple[int, ...] = (0,)
_leaders: hvd.ProcessSet = hvd.global_process_set


def start() -> None:
    """Starts Horovod, if it is not running. Without `horovodrun` there is one rank.

    Without GPUs it gets a longer cycle time, unless the user has set one.

    Raises:
        ConfigError: This host's name does not resolve. Gloo looks it up, and would abort.
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
        one_host = os.environ.get("HOROVOD_CROSS_SIZE") == "1"
        cycle_time = _CYCLE_TIME_ON_ONE_HOST if one_host else _CYCLE_TIME
        os.environ.setdefault("HOROVOD_CYCLE_TIME", cycle_time)
    hvd.init()


def has_long_cycle() -> bool:
    """Returns whether Horovod's cycle is too long for every step to wait for it."""
    return size() > 1 and os.environ.get("HOROVOD_CYCLE_TIME") == _CYCLE_TIME_ON_ONE_HOST


def stop() -> None:
    """Ends this rank's part in Horovod; another rank that calls a collective gets an error."""
    hvd.shutdown()


def find_hosts() -> tuple[int, ...]:
    """Returns the host of each rank; on several hosts, gives the leaders their own process set.

    Every rank must call it, after devices and threads are configured: it initializes TensorFlow.

    Raises:
        ConfigError: Horovod was started without support for process sets.
    """
    global _hosts, _leaders
    # A host begins with its leader. Horovod's cross_rank does not work here: on hosts with
    # different numbers of ranks it starts again at 0 for each local rank.
    first = [int(local_rank == 0) for local_rank in allgather_object(local_rank())]
    _hosts = tuple(host - 1 for host in itertools.accumulate(first))
    leaders = [rank for rank, is_first in enumerate(first) if is_first]
    # With one rank per host all are leaders, and Horovod refuses a second set of the same ranks.
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
    """Returns the host of each rank, as `find_hosts` found it; a host's ranks are consecutive."""
    return _hosts


def rank() -> int:
    """Returns this process's number among all, 0 to `size() - 1`."""
    return int(hvd.rank()) if hvd.is_initialized() else 0


def size() -> int:
    """Returns the number of ranks."""
    return int(hvd.size()) if hvd.is_initialized() else 1


def here() -> str:
    """Returns this rank and its host, for messages."""
    return f"rank {rank()} on {socket.gethostname()}"


def process() -> str:
    """Returns this rank, its process and its host, for messages."""
    return f"rank {rank()} (pid {os.getpid()} on {socket.gethostname()})"


def local_rank() -> int:
    """Returns this process's number on its host; 0 is the leader."""
    return int(hvd.local_rank()) if hvd.is_initialized() else 0


def local_size() -> int:
    """Returns the number of ranks on this host."""
    return int(hvd.local_size()) if hvd.is_initialized() else 1


def cross_rank() -> int:
    """Returns the number of this host."""
    return int(hvd.cross_rank()) if hvd.is_initialized() else 0


def cross_size() -> int:
    """Returns the number of hosts."""
    return int(hvd.cross_size()) if hvd.is_initialized() else 1


def address() -> str:
    """Returns this host's address that the other hosts can reach: that towards `horovodrun`."""
    launcher = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", socket.gethostname())
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
    """Waits until all ranks have called it."""
    allgather_object(None)


def broadcast_object(value: Any, root: int = 0) -> Any:
    """Returns rank `root`'s value on every rank; it must be picklable."""
    return hvd.broadcast_object(value, root_rank=root) if size() > 1 else value


def allgather_object(value: Any) -> list[Any]:
    """Returns the values of all ranks, in order; they must be picklable."""
    return list(hvd.allgather_object(value)) if size() > 1 else [value]


def allgather(array: np.ndarray) -> np.ndarray:
    """Returns all ranks' arrays, concatenated along axis 0 in rank order; first axes may differ.

    Args:
        array: Has at least one axis; the other axes and the dtype are equal on all ranks.
    """
    if size() == 1:
        return array
    return np.concatenate(allgather_object(array))


def together(work: Callable[[], Result]) -> Result:
    """Runs `work` on every rank, and raises on all ranks if it fails on one.

    Otherwise a rank that fails would leave the others waiting in their next collective.

    Raises:
        Exception: What `work` raised on this rank, with a note about other ranks that failed.
        StoreError: On the other ranks; lists the ranks that failed, one per line.
    """
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:  # sent to all ranks, raised below
        failure = error
    told = allgather_object(failure and f"{here()}: {type(failure).__name__}: {failure}")
    failures = [text for other, text in enumerate(told) if text and other != rank()]
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
        message: `[words]`; the number of words may differ between ranks.
        name: Equal on all ranks, and unique among the collectives in flight.
    """
    return hvd.allgather(message, name=name, ignore_name_scope=True) if size() > 1 else message


def gather_from_hosts(message: tf.Tensor, name: str) -> tf.Tensor:
    """Concatenates the messages of all leaders in the order of hosts, in the leaders' graph.

    Args:
        message: See `gather_messages`.
        name: See `gather_messages`.
    """
    return hvd.allgather(message, name=name, ignore_name_scope=True, process_set=_leaders)


def scatter_to_hosts(shares: tf.Tensor, splits: tf.Tensor, name: str) -> tf.Tensor:
    """Sends each leader its share; concatenates the shares received, in the order of hosts.

    Args:
        shares: `[words]`, one share per host, concatenated.
        splits: int32 `[hosts]`, their lengths.
        name: See `gather_messages`.
    """
    received, _ = hvd.alltoall(
        shares, splits, name=name, ignore_name_scope=True, process_set=_leaders
    )
    return received


def total(tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns the sums of tensors over ranks, in a graph, as one group.

    Args:
        tensors: In the same order and with the same shapes on all ranks.
        name: See `gather_messages`. Horovod's default depends on layer names. These differ if a
            rank has built another model before, and the ranks would wait forever.
    """
    if size() == 1:
        return list(tensors)
    return _grouped_sum(tensors, name, hvd.global_process_set)


def total_of_hosts(tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns the sums of tensors over the leaders of hosts, in the leaders' graph, as one group.

    Args:
        tensors: See `total`.
        name: See `gather_messages`.
    """
    return _grouped_sum(tensors, name, _leaders)


def _grouped_sum(tensors: Sequence[tf.Tensor], name: str, ranks: hvd.ProcessSet) -> list[tf.Tensor]:
    """Returns the sums over some ranks; one group per dtype, since Horovod cannot mix them."""
    sums: dict[int, tf.Tensor] = {}
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        group = hvd.grouped_allreduce(
            [tensors[place] for place in places],
            op=hvd.Sum,
            name=f"{name}.{dtype.name}",
            ignore_name_scope=True,
            process_set=ranks,
        )
        sums.update(zip(places, group, strict=True))
    return [sums[place] for place in range(len(tensors))]
