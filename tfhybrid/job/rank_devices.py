"""Devices of a rank (GPUs or logical CPU devices) and its number of threads."""

from __future__ import annotations

import logging
import os

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.errors import ConfigError
from tfhybrid.settings import available_gpus

_log = logging.getLogger("tfhybrid.job")


def check_number(per_rank: object) -> None:
    """Checks the argument `devices_per_rank` of `init`.

    Args:
        per_rank: Value of the argument.

    Raises:
        ConfigError: The value is not a whole number of at least 1.
    """
    if not isinstance(per_rank, int) or isinstance(per_rank, bool) or per_rank < 1:
        raise ConfigError(
            "devices_per_rank must be a whole number, 1 or more. "
            f"Received: devices_per_rank={per_rank!r}"
        )


def assign_devices(per_rank: int) -> tuple[str, ...]:
    """Assigns this rank its devices and its part of the host's processors.

    Must be called before TensorFlow is used. On a host without GPUs, several devices are logical
    CPU devices.

    Args:
        per_rank: Number of devices of each rank.

    Returns:
        Names of the rank's devices, for `tf.device`.

    Raises:
        ConfigError: With several devices per rank: the host has too few GPUs, or TensorFlow was
            already in use. With one device per rank, the latter only logs a warning.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus and distributed.local_rank() == 0:
        _report_idle_gpus()
    try:
        if gpus:
            _take_gpus(gpus, per_rank)
        elif per_rank > 1:
            _divide_processor(per_rank)
        _take_threads()
    except RuntimeError as error:
        if per_rank > 1:
            raise ConfigError(
                f"Call tfhybrid.init(devices_per_rank={per_rank}) before TensorFlow is used. "
                f"Received: {error}"
            ) from error
        _log.warning(
            "TensorFlow was in use before tfhybrid.init(), so its devices and threads cannot be "
            "set (%s). Call init() first.",
            error,
        )
    kind = "GPU" if gpus else "CPU"
    return tuple(f"{kind}:{number}" for number in range(per_rank))


def _report_idle_gpus() -> None:
    """Logs that TensorFlow uses none of the host's GPUs; its own message is hidden by default."""
    idle = available_gpus() if tf.test.is_built_with_cuda() else 0
    if idle:
        _log.warning(
            "%s has %d GPU(s), but TensorFlow uses none: TF_CPP_MIN_LOG_LEVEL=0 shows why, and "
            "`tfhybrid doctor` says how to fix it. To train on processors alone, "
            "`export CUDA_VISIBLE_DEVICES=`.",
            distributed.here(),
            idle,
        )


def _take_gpus(gpus: list[tf.config.PhysicalDevice], per_rank: int) -> None:
    """Shows TensorFlow only this rank's GPUs; ranks share a GPU if there are too few."""
    first = distributed.local_rank() * per_rank
    mine = gpus[first : first + per_rank] if per_rank > 1 else [gpus[first % len(gpus)]]
    if len(mine) < per_rank:
        raise ConfigError(
            f"{distributed.local_size()} ranks of {per_rank} GPUs each need "
            f"{distributed.local_size() * per_rank} GPUs on {distributed.here()}. "
            f"Received: {len(gpus)}"
        )
    tf.config.set_visible_devices(mine, "GPU")
    for gpu in mine:
        tf.config.experimental.set_memory_growth(gpu, True)


def _divide_processor(into: int) -> None:
    processor = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(processor) or [None]) == into:
        return  # done by an earlier job of this process
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(into)]
    tf.config.set_logical_device_configuration(processor, parts)


def _take_threads() -> None:
    ranks = distributed.local_size()
    if ranks > 1 and tf.config.threading.get_intra_op_parallelism_threads() == 0:
        processors = len(os.sched_getaffinity(0))
        tf.config.threading.set_intra_op_parallelism_threads(max(1, processors // ranks))
