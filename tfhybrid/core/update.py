"""Updates of tables without TensorFlow, through an engine.

The caller must send the messages between hosts. `DistributedOptimizer` instead uses ops on the same
engine, and Horovod, inside TensorFlow's graph.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class UpdateChoices:
    """Settings of an update.

    Args:
        exchange: Route of gradients between hosts: `"leaders"` (default), `"owner"` or
            `"all_ranks"`.
        reduction: Reduction of a key's gradients: `"frequency"` (default), `"mean"` or `"sum"`. See
            `DistributedOptimizer`.
        wire_dtype: Type to which gradients are rounded between hosts: `"float32"` (default) or
            `"bfloat16"`.
        clipping: Clipping of reduced gradients: `"none"` (default), `"value"`, `"norm"` or
            `"global_norm"`.
        clip_limit: Largest value or norm after clipping.
    """

    exchange: str = "leaders"
    reduction: str = "frequency"
    wire_dtype: str = "float32"
    clipping: str = "none"
    clip_limit: float = 0.0


class UpdateConfigStruct(ctypes.Structure):
    """Settings of an update, the C struct `tfhybrid_update_config`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("tables", ctypes.c_int),
        ("table_names", ctypes.POINTER(ctypes.c_char_p)),
        *((name, ctypes.c_char_p) for name in ("exchange", "reduction", "wire_dtype", "clipping")),
        ("clip_limit", ctypes.c_float),
        ("steps", ctypes.c_int64),
    ]


class ContributionStruct(ctypes.Structure):
    """Gradients of one rank for an update, the C struct `tfhybrid_contribution`."""

    held: object = None  # keeps the memory alive

    _fields_ = [
        ("counts", ctypes.POINTER(ctypes.c_int64)),
        ("keys", ctypes.POINTER(ctypes.c_void_p)),
        ("gradients", ctypes.POINTER(ctypes.c_void_p)),
        ("samples", ctypes.c_int64),
        ("event_time", ctypes.c_int64),
        ("skip", ctypes.c_int),
        ("failure", ctypes.c_char_p),
    ]


class Update:
    """An update of tables by the gradients of all ranks; each host applies it once per step.

    A step begins with `post` on every rank. On one host, or if a table is sharded, the engine does
    the rest. Otherwise leaders exchange what their hosts have posted, which `ops.update_ops` does.
    `Engine.open_update` creates an update.

    Args:
        engine: Handle of the engine.
        name: Name of the update; equal on all ranks.
        tables: Dim of each table, by its name. The tables must be open in the engine. The methods
            take keys, gradients and learning rates in this order.
        choices: Settings of the update.
        steps: Number of steps that the job has done before this process. Default 0.

    Attributes:
        number: Number of the update in its engine.

    Raises:
        ConfigError: A setting is invalid, there is no table, or the update is open with other
            settings.
        StoreError: The engine has no store, or a table is not open in it.
    """

    def __init__(
        self,
        engine: ctypes.c_int64,
        name: str,
        tables: dict[str, int],
        choices: UpdateChoices,
        steps: int = 0,
    ) -> None:
        self._engine = engine
        self._dims = list(tables.values())
        config = UpdateConfigStruct(
            name.encode(),
            len(tables),
            (ctypes.c_char_p * len(tables))(*(table.encode() for table in tables)),
            choices.exchange.encode(),
            choices.reduction.encode(),
            choices.wire_dtype.encode(),
            choices.clipping.encode(),
            choices.clip_limit,
            steps,
        )
        number = ctypes.c_int64()
        native.call("update_open", self._engine, ctypes.byref(config), ctypes.byref(number))
        self._handle = number
        self.number = number.value

    @property
    def steps(self) -> int:
        """Number of steps that this leader has begun; only of an update with sharded tables.

        Raises:
            StoreError: The update has no sharded tables, or this process is not the leader.
        """
        steps = ctypes.c_int64()
        self._call("steps", ctypes.byref(steps))
        return steps.value

    def post(
        self,
        keys: Sequence[np.ndarray],
        gradients: Sequence[np.ndarray],
        learning_rates: Sequence[float],
        *,
        samples: int,
        event_time: int = native.NO_TIME,
        skip: bool = False,
        failure: str | None = None,
    ) -> None:
        """Posts this rank's gradients of a step, once the tables have the previous update.

        Every rank must call it once per step. On one host, the leader applies the update when all
        ranks have posted. No rank waits for that here: `Engine.wait` waits.

        Args:
            keys: Keys of each table, int64 `[n]`, in any order, with repetitions.
            gradients: Gradient of each key, float32 `[n, dim]` per table.
            learning_rates: Learning rate of each table.
            samples: Number of samples in the batch; 0 on a rank that has none left.
            event_time: Time of the batch's latest event. Default: unknown.
            skip: Whether a gradient is not finite; no rank then applies this step.
            failure: Reason why there are no gradients. Every rank raises it as an error.

        Raises:
            ConfigError: Shapes or the number of learning rates do not match.
            TfhybridError: An earlier update failed, or there is no space for the message.
            StoreError: The exchange is `"all_ranks"`, a table has got another optimizer, or the job
                has ended.
        """
        self._call(
            "post",
            ctypes.byref(self._contribution(keys, gradients, samples, event_time, skip, failure)),
            self._rates(learning_rates),
        )

    def _rates(self, learning_rates: Sequence[float]) -> ctypes.Array:
        if len(learning_rates) != len(self._dims):
            raise ConfigError(
                f"There must be a learning rate for each of {len(self._dims)} tables. "
                f"Received: {list(learning_rates)}"
            )
        return (ctypes.c_float * len(learning_rates))(*learning_rates)

    def _contribution(
        self,
        keys: Sequence[np.ndarray],
        gradients: Sequence[np.ndarray],
        samples: int,
        event_time: int,
        skip: bool,
        failure: str | None,
    ) -> ContributionStruct:
        keys = [np.ascontiguousarray(of_table, np.int64) for of_table in keys]
        gradients = [np.ascontiguousarray(of_table, np.float32) for of_table in gradients]
        shapes = [(len(of_table), dim) for of_table, dim in zip(keys, self._dims, strict=True)]
        if [of_table.shape for of_table in gradients] != shapes:
            raise ConfigError(
                f"Gradients must be {shapes} for these keys. "
                f"Received: {[of_table.shape for of_table in gradients]}"
            )
        contribution = ContributionStruct(
            (ctypes.c_int64 * len(keys))(*map(len, keys)),
            native.pointers(keys),
            native.pointers(gradients),
            samples,
            event_time,
            skip,
            None if failure is None else failure.encode(),
        )
        contribution.held = keys, gradients
        return contribution

    def _call(self, function: str, *arguments: object) -> None:
        native.call(f"update_{function}", self._engine, self._handle, *arguments)
