"""Horovod, and nothing else of it than its collectives: the only importer of `horovod`.

Horovod's own Keras wrappers fail on Keras 3; its collectives do not.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

# Before Horovod starts: with fused groups the order of summation of a dense gradient depends on
# which tensors happen to be ready together, and so do its bits.
os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")

import horovod
import horovod.tensorflow as hvd
import tensorflow as tf

from tfhybrid.errors import StoreError

Result = TypeVar("Result")


def start() -> None:
    """Starts Horovod, once; without `horovodrun`, as one rank."""
    hvd.init()


def rank() -> int:
    """Returns this process's number among all, 0 to `size() - 1`."""
    return int(hvd.rank()) if hvd.is_initialized() else 0


def size() -> int:
    """Returns the number of ranks."""
    return int(hvd.size()) if hvd.is_initialized() else 1


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


def horovod_version() -> str:
    """Returns the version of the installed Horovod."""
    return str(horovod.__version__)


def barrier() -> None:
    """Waits until all ranks have come here."""
    allgather_object(None)


def broadcast_object(value: Any, root: int = 0) -> Any:
    """Returns rank `root`'s value on every rank; it must be picklable."""
    return hvd.broadcast_object(value, root_rank=root) if size() > 1 else value


def allgather_object(value: Any) -> list[Any]:
    """Returns the values of all ranks, in order; they must be picklable."""
    return list(hvd.allgather_object(value)) if size() > 1 else [value]


def allgather(array: np.ndarray) -> np.ndarray:
    """Returns the arrays of all ranks, joined along axis 0 in order; first axes may differ.

    Args:
        array: Of at least one axis; the other axes and the dtype are equal on all ranks.
    """
    if size() == 1:
        return array
    return np.concatenate(allgather_object(array))


def together(work: Callable[[], Result]) -> Result:
    """Runs `work` on every rank, and raises on all of them if it fails on one.

    Without it a rank whose part fails would leave the others waiting in their next collective.

    Raises:
        Exception: Where `work` raised, what it raised.
        StoreError: On the other ranks, with the rank that failed in front.
    """
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:  # told to all ranks, raised below
        failure = error
    here = f"rank {rank()} on {socket.gethostname()}"
    failures = allgather_object(failure and f"{here}: {type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    if any(failures):
        raise StoreError(next(text for text in failures if text))
    return result


def gather_messages(message: tf.Tensor, name: str) -> tf.Tensor:
    """Lays the messages of all ranks end to end, in a graph.

    Args:
        message: int64 `[words]`; every rank may bring another number.
        name: Equal on all ranks, and different from what is under way at the same time.
    """
    return hvd.allgather(message, name=name, ignore_name_scope=True) if size() > 1 else message


def average(gradients: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns dense gradients averaged over ranks, in a graph, as one group.

    Args:
        gradients: In the same order on all ranks.
        name: As of `gather_messages`. Horovod would make one of the layers' names, which differ
            where one rank has built another model before, and the ranks would wait forever.
    """
    if size() == 1 or not gradients:
        return list(gradients)
    return list(
        hvd.grouped_allreduce(list(gradients), op=hvd.Average, name=name, ignore_name_scope=True)
    )
