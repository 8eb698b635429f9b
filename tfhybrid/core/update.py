"""An update of tables without TensorFlow, through the engine that has it open.

How messages travel between hosts is the caller's: `DistributedOptimizer` has Horovod do it inside
TensorFlow's graph, by ops over the same engine.
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
    """How the updates of some tables are done.

    Args:
        exchange: How gradients travel between hosts: `"leaders"`, `"owner"` or `"all_ranks"`.
        reduction: What the sum of a key's gradients is divided by: `"frequency"`, `"mean"` or
            `"sum"`.
        wire_dtype: What gradients are rounded to between hosts: `"float32"` or `"bfloat16"`.
        clipping: Of reduced gradients: `"none"`, `"value"`, `"norm"` or `"global_norm"`.
        clip_limit: Of what is clipped.
    """

    exchange: str = "leaders"
    reduction: str = "frequency"
    wire_dtype: str = "float32"
    clipping: str = "none"
    clip_limit: float = 0.0


class UpdateConfigStruct(ctypes.Structure):
    """`tfhybrid_update_config`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("tables", ctypes.c_int),
        ("table_names", ctypes.POINTER(ctypes.c_char_p)),
        *((name, ctypes.c_char_p) for name in ("exchange", "reduction", "wire_dtype", "clipping")),
        ("clip_limit", ctypes.c_float),
        ("steps", ctypes.c_int64),
    ]


class ContributionStruct(ctypes.Structure):
    """`tfhybrid_contribution`."""

    held: object = None  # what it points into

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
    """The updates of some tables: each step every rank posts, and each host applies it once.

    Where several hosts take part, their leaders then `merge`, send each other what that returns,
    `stage` what they got, and `commit`; with `exchange="owner"` there is `merge_owned` between.
    With `exchange="all_ranks"` every rank instead packs a message, gets those of all ranks, and
    calls `apply_gathered`.

    Args:
        engine: Handle of the engine.
        name: Tells it from other updates; equal on all ranks.
        tables: Name and dim of its tables, which are open in the engine.
        messages: How many messages a merge makes.
        choices: How it is done.
        steps: That the job has done of it before this process.

    Attributes:
        number: Of the update, in its engine.

    Raises:
        ConfigError: A choice cannot be, or the update is open with others.
        StoreError: The engine has no store, or a table is not open in it.
    """

    def __init__(
        self,
        engine: ctypes.c_int64,
        name: str,
        tables: dict[str, int],
        messages: int,
        choices: UpdateChoices,
        steps: int = 0,
    ) -> None:
        self._engine = engine
        self._dims = list(tables.values())
        self._messages = messages
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
        """How many steps this leader has begun; of an update with sharded tables."""
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
        dense_squares: float = 0.0,
    ) -> None:
        """Posts what this rank brings to a step, once the tables have the one before.

        Args:
            keys: int64 `[n]` of each table, in any order, as often as they occur.
            gradients: Of each key, float32 `[n, dim]`.
            learning_rates: Of each table.
            samples: Of the batch; 0 from a rank that has none left.
            event_time: Of the batch's latest event.
            skip: Whether a gradient is not finite, so that nobody applies this step.
            failure: Why there are no gradients; every rank raises it.
            dense_squares: The squares of all dense gradients, added up; for clipping by global
                norm.

        Raises:
            ConfigError: Shapes do not fit.
            TfhybridError: An update before failed, or there is no room for the message.
        """
        self._call(
            "post",
            ctypes.byref(self._contribution(keys, gradients, samples, event_time, skip, failure)),
            *self._numbers(learning_rates, dense_squares),
        )

    def merge(self) -> list[np.ndarray]:
        """Waits for the posts of this host's ranks and merges them; leaders of several hosts.

        Returns:
            What goes to all other leaders, int64 `[words]`; with `exchange="owner"` what goes to
            each leader.
        """
        sizes = (ctypes.c_int64 * self._messages)()
        count = ctypes.c_int64()
        self._call(
            "merge",
            sizes,
            ctypes.c_int64(self._messages),
            ctypes.byref(count),
        )
        return np.split(self._merged(sum(sizes)), np.cumsum(list(sizes))[:-1])

    def merge_owned(self, shares: np.ndarray) -> np.ndarray:
        """Merges what the leaders sent to this one; with `exchange="owner"`.

        Args:
            shares: int64 `[words]`, end to end in the order of hosts.

        Returns:
            What goes to all leaders, int64 `[words]`.
        """
        words = ctypes.c_int64()
        self._call(
            "merge_owned",
            native.pointer(shares),
            ctypes.c_int64(len(shares)),
            ctypes.byref(words),
        )
        return self._merged(words.value)

    def stage(self, messages: np.ndarray) -> tuple[bool, str]:
        """Plans what the leaders say and makes room for it.

        Args:
            messages: int64 `[words]`, end to end in the order of hosts.

        Returns:
            Whether the other hosts' complaints count too, and why this host cannot apply the
            update; empty if it can.
        """
        vote = ctypes.c_int()
        complaint = native.text(
            "update_stage",
            self._engine,
            self._handle,
            native.pointer(messages),
            ctypes.c_int64(len(messages)),
            ctypes.byref(vote),
            again=False,
        )
        return bool(vote.value), complaint

    def commit(
        self,
        learning_rates: Sequence[float],
        complaint: str = "",
        *,
        dense_squares: float = 0.0,
    ) -> None:
        """Applies what was staged, or tells all ranks of this host why it will not come.

        Args:
            learning_rates: Of each table.
            complaint: Of all hosts, the same on all; empty to apply it.
            dense_squares: As of `post`.
        """
        self._call(
            "commit",
            complaint.encode(),
            *self._numbers(learning_rates, dense_squares),
        )

    def pack(
        self,
        keys: Sequence[np.ndarray],
        gradients: Sequence[np.ndarray],
        *,
        samples: int,
        event_time: int = native.NO_TIME,
        skip: bool = False,
        failure: str | None = None,
    ) -> np.ndarray:
        """Packs what this rank brings to a step; with `exchange="all_ranks"`.

        Args:
            keys: As of `post`; so are the others.
            gradients: As of `post`.
            samples: As of `post`.
            event_time: As of `post`.
            skip: As of `post`.
            failure: As of `post`.

        Returns:
            What goes to all ranks, int64 `[words]`.
        """
        contribution = self._contribution(keys, gradients, samples, event_time, skip, failure)
        return native.words(
            np.int64,
            "update_pack",
            self._engine,
            self._handle,
            ctypes.byref(contribution),
        )

    def apply_gathered(
        self,
        messages: np.ndarray,
        learning_rates: Sequence[float],
        *,
        dense_squares: float = 0.0,
    ) -> None:
        """Lets the leader apply what all ranks packed; on every rank.

        Args:
            messages: int64 `[words]`, end to end in the order of ranks.
            learning_rates: Of each table.
            dense_squares: As of `post`.
        """
        self._call(
            "apply_gathered",
            native.pointer(messages),
            ctypes.c_int64(len(messages)),
            *self._numbers(learning_rates, dense_squares),
        )

    def _merged(self, words: int) -> np.ndarray:
        merged, size = np.empty(words, np.int64), ctypes.c_int64()
        self._call(
            "merged",
            native.pointer(merged),
            ctypes.c_int64(words),
            ctypes.byref(size),
        )
        return merged

    def _numbers(self, learning_rates: Sequence[float], dense_squares: float) -> tuple:
        if len(learning_rates) != len(self._dims):
            raise ConfigError(
                f"There is a learning rate for each of {len(self._dims)} tables. "
                f"Received: {list(learning_rates)}"
            )
        rates = (ctypes.c_float * len(learning_rates))(*learning_rates)
        return rates, ctypes.c_double(dense_squares)

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
        wanted = [(len(some), dim) for some, dim in zip(keys, self._dims, strict=True)]
        if [of_table.shape for of_table in gradients] != wanted:
            raise ConfigError(
                f"Gradients are {wanted} for these keys. "
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
