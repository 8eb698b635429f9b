"""The C interface of the native core (`custom_ops/core/c_api.h`), through ctypes; no TensorFlow.

Every call that can fail raises the exception of `tfhybrid.errors` that matches its status. All
functions are thread-safe.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from tfhybrid import errors

_LIBRARY = Path(__file__).resolve().parent.parent / "ops" / "libtfhybrid_core.so"

# tfhybrid::StatusCode
_ERRORS: dict[int, type[errors.TfhybridError]] = {
    1: errors.ConfigError,
    2: errors.StoreError,
    3: errors.NameTakenError,
    4: errors.StoreError,
    5: errors.OutOfSpaceError,
    6: errors.CorruptFileError,
    7: errors.PeerDiedError,
    8: errors.PeerDiedError,
    9: errors.StoreError,
}


class OptimizerKind(enum.IntEnum):
    """Algorithm of an optimizer, with the numbers of the C++ enum `tfhybrid::OptimizerKind`."""

    SGD = 1
    ADAGRAD = 2
    ADAM = 3
    RMSPROP = 4
    FTRL = 5
    ROW_ADAGRAD = 6


class OptimizerFlag(enum.IntFlag):
    """Options of an optimizer, as bits of the C++ field `tfhybrid::OptimizerConfig::flags`."""

    NESTEROV = 1
    AMSGRAD = 2
    CENTERED = 4
    EVERY_ROW = 8


# A checkpoint holds the kind of an optimizer, then these, in this order. Numbers that an older
# checkpoint lacks are 0.
OPTIMIZER_NUMBERS = (
    "initial_accumulator_value",
    "beta_1",
    "beta_2",
    "epsilon",
    "momentum",
    "rho",
    "l1",
    "l2",
    "l2_shrinkage",
    "beta",
    "flags",
    "weight_decay",
    "penalty_l1",
    "penalty_l2",
)


def optimizer_settings(optimizer: Sequence[float]) -> dict[str, float]:
    """Returns the settings of an optimizer by name.

    Args:
        optimizer: Kind and `OPTIMIZER_NUMBERS` of a checkpoint; an older one has fewer of them.
    """
    return dict(zip(("kind", *OPTIMIZER_NUMBERS), optimizer, strict=False))


class RankState(enum.IntEnum):
    """State of a rank of this host, with the numbers of the C++ enum `tfhybrid::HolderState`.

    A rank has left if it closed its store; it has died if its process ended without that.
    """

    LIVING = 0
    LEFT = 1
    DIED = 2


STATS = (
    "rows",
    "version",
    "chunks",
    "index_slots",
    "embedding_bytes",
    "state_bytes",
    "history_bytes",
    "index_bytes",
    "bytes",
    *("file_bytes", "cache_bytes", "cache_hits", "cache_misses", "written_rows"),
    "evicted",
    "keys",
    "distinct_keys",
)


class PlacementKind(enum.IntEnum):
    """Distribution of a table's rows over hosts. C++: `tfhybrid::PlacementKind`."""

    REPLICATED = 0
    BY_KEY = 1
    WHOLE = 2


class LinkPurpose(enum.IntEnum):
    """Use of a connection between hosts. C++: `tfhybrid::LinkPurpose`."""

    READS = 0
    UPDATES = 1
    PASSES = 2


# `tfhybrid::Phase`
PHASES = (
    *("wait", "fetch", "lookup", "sum", "post", "collect"),
    *("exchange", "plan", "apply", "settle", "pass", "ahead"),
)
# `tfhybrid::PhaseSpan`; times in nanoseconds since the epoch.
PHASE_SPAN = np.dtype([("phase", "<i4"), ("thread", "<i4"), ("begin", "<i8"), ("end", "<i8")])

# `tfhybrid::Counter`
COUNTERS = (
    *("steps", "samples", "sent_bytes", "received_bytes", "fetched_rows", "fetched_bytes"),
    *("served_rows", "served_bytes", "keys_read", "unseen_keys", "ahead_hits", "ahead_misses"),
)

# Initial size, in elements, of the buffer for a result of unknown size.
_FIRST_ROOM = 65536

# `tfhybrid::RowHistory`
HISTORY = np.dtype([("frequency", "<f4"), ("last_step", "<u4"), ("last_time", "<i8")])
# `tfhybrid::kNoTime`
NO_TIME = -(2**63)
# `tfhybrid::WaitingName`
WAITING_SUFFIX = "~waiting"


class RowPolicyStruct(ctypes.Structure):
    """Admission and eviction of a table's keys, the C struct `tfhybrid_row_policy`."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("kind", "admission")),
        *((name, ctypes.c_uint32) for name in ("slices_log2", "frequent_stay")),
        *((name, ctypes.c_int64) for name in ("unseen_steps", "unseen_time", "half_life")),
        *((name, ctypes.c_double) for name in ("min_frequency", "min_norm")),
        *((name, ctypes.c_int64) for name in ("max_rows", "waiting_steps")),
    ]


class TableConfigStruct(ctypes.Structure):
    """Configuration of a table, the C struct `tfhybrid_table_config`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dim", ctypes.c_int64),
        ("initializer", ctypes.c_uint32),
        ("initializer_a", ctypes.c_double),
        ("initializer_b", ctypes.c_double),
        ("job_seed", ctypes.c_uint64),
        ("policy", RowPolicyStruct),
        ("placement", ctypes.c_uint32),
        ("owner", ctypes.c_int64),
        ("files", ctypes.c_char_p),
        ("cache_bytes", ctypes.c_int64),
    ]


class OptimizerConfigStruct(ctypes.Structure):
    """Settings of a table's optimizer, the C struct `tfhybrid_optimizer_config`."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("initial_accumulator_value", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        *((name, ctypes.c_double) for name in ("beta_1", "beta_2", "momentum", "rho")),
        *((name, ctypes.c_double) for name in ("l1", "l2", "l2_shrinkage", "beta")),
        *((name, ctypes.c_double) for name in ("weight_decay", "penalty_l1", "penalty_l2")),
    ]


class TableStatsStruct(ctypes.Structure):
    """Counters of a table, the C struct `tfhybrid_table_stats`."""

    _fields_ = [(name, ctypes.c_int64) for name in STATS]


class FrozenTableStruct(ctypes.Structure):
    """Sizes and version of a frozen table, the C struct `tfhybrid_frozen_table`."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "version", "parts", "whole")),
        *((name, ctypes.c_int64) for name in ("removed", "event_time")),
        ("decay", ctypes.c_double),
    ]


class TableFileStruct(ctypes.Structure):
    """Description of a written file of rows, the C struct `tfhybrid_table_file`."""

    _fields_ = [
        ("rows", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("digest", ctypes.c_uint64),
        ("crc", ctypes.c_uint32),
    ]


class RecordSchemaStruct(ctypes.Structure):
    """Layout of a binary file of records, the C struct `tfhybrid_record_schema`."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("header_bytes", "record_bytes", "key_offset", "embedding_offset")
    ]


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise ImportError(
            f"tfhybrid's native library cannot be loaded ({error}): reinstall tfhybrid, or run "
            "scripts/install in a checkout."
        ) from error
    library.tfhybrid_last_error.restype = ctypes.c_char_p
    library.tfhybrid_available_bytes.restype = ctypes.c_int64
    library.tfhybrid_table_seed.restype = ctypes.c_uint64
    library.tfhybrid_crc32c.restype = ctypes.c_uint32
    library.tfhybrid_rows_digest.restype = ctypes.c_uint64
    return library


_library = _load()


def call(function: str, *arguments: object) -> None:
    """Calls a function of the C interface and raises an exception if it fails.

    Args:
        function: Name of the function without the prefix `tfhybrid_`.
        *arguments: ctypes values, `bytes` or `None`.

    Raises:
        TfhybridError: The call failed. The subclass matches the status, the message is the core's.
    """
    code = getattr(_library, f"tfhybrid_{function}")(*arguments)
    if code != 0:
        raise _ERRORS[code](_library.tfhybrid_last_error().decode())


def words(
    dtype: type[np.generic], function: str, *arguments: object, again: bool = True
) -> np.ndarray:
    """Calls a function whose last arguments are a buffer, its capacity and the result's size.

    Args:
        dtype: Type of the buffer's elements.
        function: Name of the function without the prefix `tfhybrid_`.
        *arguments: Arguments before the buffer.
        again: Whether to call again if the buffer was too small. If `False`, the rest of the result
            is cut off.

    Returns:
        The result, `dtype [size]`.

    Raises:
        TfhybridError: The call failed.
    """
    room = _FIRST_ROOM
    while True:
        buffer, size = np.empty(room, dtype), ctypes.c_int64()
        call(function, *arguments, pointer(buffer), ctypes.c_int64(room), ctypes.byref(size))
        if size.value <= room or not again:
            return buffer[: size.value].copy()
        room = size.value


def text(function: str, *arguments: object, again: bool = True) -> str:
    """Calls a function whose last arguments are a text buffer, its capacity and the text's size.

    Args:
        function: Name of the function without the prefix `tfhybrid_`.
        *arguments: Arguments before the buffer.
        again: Whether to call again if the buffer was too small. If not, the text is cut off.

    Raises:
        TfhybridError: The call failed.
    """
    return words(np.uint8, function, *arguments, again=again).tobytes().decode(errors="replace")


def pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    """Returns a C-contiguous array's address, `None` for `None`. The caller keeps it alive."""
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array:
    """Returns the addresses of C-contiguous arrays, which the caller keeps alive."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def close_store(engine: int, leave: bool) -> None:
    """Closes an engine's store, if open; never fails. `leave` keeps its files for a restart."""
    _library.tfhybrid_store_close(ctypes.c_int64(engine), ctypes.c_int(leave))


def report_stores(directory: str) -> list[list[str]]:
    """Returns the core's description of a directory's stores: lines, each a list of fields."""
    lines = text("report_stores", directory.encode()).split("\n")[:-1]
    return [[unquote(field) for field in line.split("\t")] for line in lines]


# `tfhybrid_pass_report`: the open passes, then the counters of `tfhybrid::PassCounter`.
PASS_REPORT = (
    *("standing", "rows", "bytes", "announced", "hits", "misses"),
    *("requested", "copied", "fetched", "refreshed", "received_bytes", "written"),
)


def report_passes(directory: str) -> dict[str, int]:
    """Returns the counters of a host's passes, by the names of `PASS_REPORT`.

    All are 0 if the store has no passes.

    Args:
        directory: Directory of one store.
    """
    counts = (ctypes.c_int64 * len(PASS_REPORT))()
    call("report_passes", directory.encode(), ctypes.byref(counts))
    return dict(zip(PASS_REPORT, counts, strict=True))


def remove_store(directory: str, job: str) -> int:
    """Removes the store of a dead job.

    Args:
        directory: Directory of the stores.
        job: Name of the job.

    Returns:
        Size of the store in bytes.

    Raises:
        StoreError: There is no such store, or (`NameTakenError`) a process of the job is alive.
    """
    size = ctypes.c_int64()
    call("remove_store", directory.encode(), job.encode(), ctypes.byref(size))
    return size.value


def exit_after(seconds: float) -> None:
    """Ends this process with status 1 after `seconds`, unless it ends earlier.

    A Python thread could not do this: Python threads stop during finalization, which can hang.
    """
    call("exit_after", ctypes.c_int(round(seconds * 1000)))


def linger_after_sigterm(seconds: float) -> None:
    """Makes SIGTERM end this process with a delay from now on; 0 restores the default.

    A Python handler could not do this: it runs only when the main thread returns from TensorFlow.
    Nothing changes if the program ignores SIGTERM or has its own handler.
    """
    call("linger_after_sigterm", ctypes.c_int(round(seconds * 1000)))


def is_lingering() -> bool:
    """Returns whether this process has received a SIGTERM and lingers."""
    return bool(_library.tfhybrid_is_lingering())


def phase_times() -> dict[str, float]:
    """Returns the seconds that this process has spent in each phase of its steps, by name."""
    times = (ctypes.c_int64 * len(PHASES))()
    call("phase_times", ctypes.c_int(len(PHASES)), times)
    return {phase: 1e-9 * time for phase, time in zip(PHASES, times, strict=True)}


def start_timeline(most: int) -> None:
    """Starts to record for `timeline` when each thread of this process is in which phase.

    Args:
        most: Maximum number of spans of all threads; earlier spans are forgotten. 0 stops it.
    """
    call("timeline_start", ctypes.c_int64(most))


def timeline(most: int) -> np.ndarray:
    """Returns the recorded spans, an array of `PHASE_SPAN` in the order of their ends.

    Args:
        most: Maximum number of spans to return.
    """
    spans, count = np.empty(most, PHASE_SPAN), ctypes.c_int64()
    call("timeline_get", pointer(spans), ctypes.c_int64(most), ctypes.byref(count))
    return spans[: count.value].copy()


def counters() -> dict[str, int]:
    """Returns counts of this process since it started, such as "steps", by name (`COUNTERS`)."""
    counts = (ctypes.c_int64 * len(COUNTERS))()
    call("counters", ctypes.c_int(len(COUNTERS)), counts)
    return dict(zip(COUNTERS, counts, strict=True))


def available_bytes(directory: str) -> int:
    """Returns how many bytes can still be reserved in a directory, within the memory limit."""
    return int(_library.tfhybrid_available_bytes(directory.encode()))


def initial_rows(
    kind: int, a: float, b: float, seed: int, keys: np.ndarray, dim: int
) -> np.ndarray:
    """Returns the initial embeddings of keys, float32 `[n, dim]`.

    Args:
        kind: Kind of the initializer, the first entry of `native` of a `tfhybrid.initializers`.
        a: First parameter of the initializer.
        b: Second parameter of the initializer.
        seed: Seed of the table, from `table_seed`.
        keys: int64 `[n]`.
        dim: Length of an embedding.

    Raises:
        ConfigError: The kind is unknown, or its parameters are invalid.
    """
    keys = np.ascontiguousarray(keys, np.int64)
    rows = np.empty((len(keys), dim), np.float32)
    call(
        "initial_rows",
        ctypes.c_uint32(kind),
        ctypes.c_double(a),
        ctypes.c_double(b),
        ctypes.c_uint64(seed),
        ctypes.c_int64(len(keys)),
        pointer(keys),
        ctypes.c_int64(dim),
        pointer(rows),
    )
    return rows


def table_seed(job_seed: int, name: str) -> int:
    """Returns the seed of a table's initial values, from the job's seed and the table's name."""
    return int(_library.tfhybrid_table_seed(ctypes.c_uint64(job_seed), name.encode()))


def rows_digest(
    keys: np.ndarray, embeddings: np.ndarray, states: np.ndarray, history: np.ndarray
) -> int:
    """Returns the contribution of rows to a table's digest, which is the sum modulo 2^64.

    Args:
        keys: int64 `[n]`.
        embeddings: float32 `[n, dim]`.
        states: float32 `[n, slots, floats]`.
        history: `HISTORY` `[n]`; empty if the table keeps none.
    """
    arrays = [
        np.require(array, requirements=["C", "A"]) for array in (keys, embeddings, states, history)
    ]
    keys, embeddings, states, history = arrays
    return int(
        _library.tfhybrid_rows_digest(
            pointer(keys),
            ctypes.c_int64(len(keys)),
            pointer(embeddings),
            ctypes.c_int64(embeddings.shape[1]),
            pointer(states),
            ctypes.c_int64(states.shape[1] * states.shape[2]),
            pointer(history) if history.nbytes else None,
        )
    )


def crc32c(data: bytes | np.ndarray, seed: int = 0) -> int:
    """Returns the CRC-32C of `data`; `seed` is the CRC-32C of bytes before it, if any."""
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    return int(
        _library.tfhybrid_crc32c(
            pointer(array), ctypes.c_int64(array.nbytes), ctypes.c_uint32(seed)
        )
    )
