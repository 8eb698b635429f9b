"""Training and reading of this process's tables without TensorFlow: the core's engine, by ctypes.

How messages travel between hosts is the caller's: `DistributedOptimizer` has Horovod do it inside
TensorFlow's graph, by ops over the same engine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.errors import ConfigError

# How long a rank waits for its leader to make a table; the leader may be loading data first.
_OPEN_TIMEOUT_MS = 120_000


class UpdateConfigStruct(ctypes.Structure):
    """`tfhybrid_update_config`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("tables", ctypes.c_int),
        ("table_names", ctypes.POINTER(ctypes.c_char_p)),
        ("ranks", ctypes.c_int),
        ("hosts", ctypes.POINTER(ctypes.c_int64)),
        ("host", ctypes.c_int64),
        *((name, ctypes.c_char_p) for name in ("exchange", "reduction", "wire_dtype", "clipping")),
        ("clip_limit", ctypes.c_float),
    ]


class ContributionStruct(ctypes.Structure):
    """`tfhybrid_contribution`."""

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

    Args:
        name: Tells it from other updates; equal on all ranks.
        tables: Name and dim of its tables, which are open in this process.
        hosts: The host of each rank; ranks of a host follow each other.
        host: This one.
        exchange: `"leaders"` or `"owner"`.
        reduction: What the sum of a key's gradients is divided by: `"frequency"`, `"mean"` or
            `"sum"`.
        wire_dtype: What gradients are rounded to between hosts: `"float32"` or `"bfloat16"`.
        clipping: `"none"`, `"value"`, `"norm"` or `"global_norm"`.
        clip_limit: Of what is clipped.

    Raises:
        ConfigError: An argument cannot be, or the update is open with others.
        StoreError: The process has no store, or a table is not open in it.
    """

    def __init__(
        self,
        name: str,
        tables: dict[str, int],
        hosts: Sequence[int],
        host: int,
        *,
        exchange: str = "leaders",
        reduction: str = "frequency",
        wire_dtype: str = "float32",
        clipping: str = "none",
        clip_limit: float = 0.0,
    ) -> None:
        self._dims = list(tables.values())
        self._messages = len(set(hosts)) if exchange == "owner" else 1
        config = UpdateConfigStruct(
            name.encode(),
            len(tables),
            (ctypes.c_char_p * len(tables))(*(table.encode() for table in tables)),
            len(hosts),
            (ctypes.c_int64 * len(hosts))(*hosts),
            host,
            *(choice.encode() for choice in (exchange, reduction, wire_dtype, clipping)),
            clip_limit,
        )
        number = ctypes.c_int64()
        native.call("update_open", ctypes.byref(config), ctypes.byref(number))
        self._number = number

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
            _pointers(keys),
            _pointers(gradients),
            samples,
            event_time,
            skip,
            None if failure is None else failure.encode(),
        )
        native.call(
            "update_post",
            self._number,
            ctypes.byref(contribution),
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
        native.call(
            "update_merge",
            self._number,
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
        native.call(
            "update_merge_owned",
            self._number,
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
            self._number,
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
        native.call(
            "update_commit",
            self._number,
            complaint.encode(),
            *self._numbers(learning_rates, dense_squares),
        )

    def _merged(self, words: int) -> np.ndarray:
        merged, size = np.empty(words, np.int64), ctypes.c_int64()
        native.call(
            "update_merged",
            self._number,
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


def open_table(
    name: str,
    dim: int,
    initializer: tuple[int, float, float],
    *,
    seed: int = 0,
    policy: dict[str, float] | None = None,
) -> None:
    """Opens a table in this process's store; the leader makes it, the others wait for that.

    Args:
        name: Of the table.
        dim: Floats of an embedding.
        initializer: `native` of one of `tfhybrid.initializers`.
        seed: Of the job.
        policy: Fields of `native.RowPolicyStruct`; by default no row is ever waited for or removed.

    Raises:
        TfhybridError: It is open with another configuration, or did not come in time.
    """
    config = native.TableConfigStruct(
        name.encode(), dim, *initializer, seed, native.RowPolicyStruct(**(policy or {}))
    )
    native.call("table_open", ctypes.byref(config), ctypes.c_int(_OPEN_TIMEOUT_MS))


def set_optimizer(name: str, **settings: float) -> None:
    """Gives a table its optimizer; the leader alone.

    Args:
        name: Of the table.
        **settings: Fields of `native.OptimizerConfigStruct`; those that are left out are 0.

    Raises:
        TfhybridError: A setting cannot be, or this process does not lead.
    """
    native.call(
        "table_set_optimizer", name.encode(), ctypes.byref(native.OptimizerConfigStruct(**settings))
    )


def digest(name: str) -> int:
    """Returns a hash by which two hosts see whether a table's replicas are equal, bit for bit.

    On a leader it covers keys, embeddings and optimizer state, elsewhere keys and embeddings.
    """
    value = ctypes.c_uint64()
    native.call("table_digest", name.encode(), ctypes.byref(value))
    return value.value


def wait(table: str) -> None:
    """Waits until a table has the updates that this rank has taken part in.

    Raises:
        TfhybridError: Why one of them failed.
    """
    native.call("table_wait", table.encode())


def read(
    tables: dict[str, int],
    keys: Sequence[np.ndarray],
    *,
    min_versions: Sequence[int] | None = None,
    timeout_seconds: float = 60.0,
) -> tuple[list[np.ndarray], list[int]]:
    """Reads embeddings of several tables as they all were after one update, beside training.

    Args:
        tables: Name and dim of each.
        keys: int64 `[n]` of each table.
        min_versions: The least version of each table that will do; by default any.
        timeout_seconds: How long to wait for that.

    Returns:
        Embeddings, float32 `[n, dim]`, and the version, of each table.

    Raises:
        TfhybridError: The versions were not reached in time, or the leader died.
    """
    keys = [np.ascontiguousarray(of_table, np.int64) for of_table in keys]
    rows = [
        np.empty((len(some), dim), np.float32)
        for some, dim in zip(keys, tables.values(), strict=True)
    ]
    count = len(tables)
    versions = (ctypes.c_uint64 * count)()
    native.call(
        "read",
        ctypes.c_int(count),
        (ctypes.c_char_p * count)(*(name.encode() for name in tables)),
        None if min_versions is None else (ctypes.c_uint64 * count)(*min_versions),
        (ctypes.c_int64 * count)(*map(len, keys)),
        _pointers(keys),
        _pointers(rows),
        ctypes.c_int(round(timeout_seconds * 1000)),
        versions,
    )
    return rows, list(versions)


def _pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
