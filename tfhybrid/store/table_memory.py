"""The size of a table in shared memory and on disk, computed from the store's layout.

docs/store_format.md describes the layout; a test compares the results with trained tables.
"""

from __future__ import annotations

import dataclasses

from tfhybrid.core import native

_PAGE, _LINE = 4096, 64
_FIRST_CHUNK_LOG2 = 6
_MAX_CHUNK_BYTES = 64 << 20
_SLOT_BYTES, _FIRST_SLOTS = 16, 128
# For tables in files: slots of index and cache, and the row address that replaces an embedding.
_COMPACT_SLOT_BYTES, _COMPACT_BUCKET = 8, 8
_CACHE_SLOT_BYTES, _ADDRESS_FLOATS = 16, 2
# Bytes from which an index is created ahead of time, by a thread. A smaller one is created within a
# step.
_WORTH_A_THREAD = 1 << 20


@dataclasses.dataclass(frozen=True)
class TableShape:
    """Parameters that determine a table's size.

    Args:
        rows: Final number of rows.
        dim: Length of an embedding.
        state_floats: Number of floats in a row's optimizer state.
        history: Whether the table has admission or eviction.
        cache_bytes: Cache size of its `FileTier`; 0 if rows are in memory.
    """

    rows: int
    dim: int
    state_floats: int
    history: bool = False
    cache_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class TableBytes:
    """Size of a table in bytes.

    Attributes:
        embeddings: Keys and embeddings; for a table in files, keys and row addresses.
        state: Optimizer state.
        history: Histories of rows.
        index: Index.
        peak: Maximum while the table grows, with two indexes and the next chunk.
        checkpoint: Rows in a checkpoint.
        cache: Cache of a table in files, with its header page; else 0.
        file: Reserved space of a table in files; else 0.
    """

    embeddings: int
    state: int
    history: int
    index: int
    peak: int
    checkpoint: int
    cache: int = 0
    file: int = 0

    @property
    def total(self) -> int:
        """Bytes in memory once the table has all its rows, as `Table.stats().bytes` counts them."""
        return _PAGE + self.embeddings + self.state + self.history + self.index + self.cache


def bytes_of(table: TableShape) -> TableBytes:
    """Computes the size of a table.

    Args:
        table: Numbers of rows and floats of the table.

    Returns:
        The bytes of each part, in shared memory and in a checkpoint.

    Example:

    >>> bytes_of(TableShape(rows=1_000_000, dim=16, state_floats=16)).total
    176304128
    """
    if table.cache_bytes:
        return _bytes_in_files(table)
    chunks = _chunks(table)
    history_floats = native.HISTORY.itemsize // 4 if table.history else 0
    embeddings = sum(_row_chunk_bytes(rows, table.dim) for rows in chunks)
    state = sum(_chunk_bytes(rows, table.state_floats) for rows in chunks)
    history = sum(_chunk_bytes(rows, history_floats) for rows in chunks)
    slots = _slots(table.rows)
    index = _whole(_LINE + slots * _SLOT_BYTES, _PAGE)
    row_bytes = 8 + 4 * (table.dim + table.state_floats + history_floats)
    total = _PAGE + embeddings + state + history + index
    ahead = _next_chunk_rows(table, len(chunks)) * row_bytes
    return TableBytes(
        embeddings, state, history, index, total + index // 2 + ahead, table.rows * row_bytes
    )


def _bytes_in_files(table: TableShape) -> TableBytes:
    chunks = _chunks(table)
    history_floats = native.HISTORY.itemsize // 4 if table.history else 0
    addresses = sum(_row_chunk_bytes(rows, _ADDRESS_FLOATS) for rows in chunks)
    history = sum(_chunk_bytes(rows, history_floats) for rows in chunks)
    slots = _compact_slots(table.rows)
    index = _whole(_LINE + slots * _COMPACT_SLOT_BYTES, _PAGE)
    record = 4 * (table.dim + table.state_floats)
    cached = table.cache_bytes // (record + _CACHE_SLOT_BYTES)
    cache = _PAGE + _whole(
        _whole(_PAGE + cached * _CACHE_SLOT_BYTES, _LINE) + cached * record, _PAGE
    )
    ahead = _next_chunk_rows(table, len(chunks)) * (8 + 4 * (_ADDRESS_FLOATS + history_floats))
    return TableBytes(
        addresses,
        0,
        history,
        index,
        _PAGE + addresses + history + 2 * index + cache + ahead,
        table.rows * (8 + record + 4 * history_floats),
        cache,
        _file_bytes(sum(chunks), record),
    )


def _file_bytes(records: int, record: int) -> int:
    """Returns the size of a file of records. Only records larger than a page cross pages."""
    if record > _PAGE:
        return records * _whole(record, _PAGE)
    return -(-records // (_PAGE // record)) * _PAGE


def _compact_slots(rows: int) -> int:
    slots = _FIRST_SLOTS
    while rows > slots - slots // 8:
        slots = _next_compact_slots(slots)
    most = slots - slots // 8
    after = _next_compact_slots(slots)
    ahead = after * _COMPACT_SLOT_BYTES >= _WORTH_A_THREAD and rows > most // 32 * 31
    return after if ahead else slots


def _next_compact_slots(slots: int) -> int:
    """Returns the next size: m times a power of two, in buckets, with 4 <= m < 8."""
    buckets = slots // _COMPACT_BUCKET
    return slots + (1 << buckets.bit_length() - 3) * _COMPACT_BUCKET


def _chunk_log2(dim: int) -> int:
    row_bytes = max(8 + 4 * dim, 8 * dim)
    log2 = _FIRST_CHUNK_LOG2
    while row_bytes << (log2 + 1) <= _MAX_CHUNK_BYTES:
        log2 += 1
    return log2


def _chunks(table: TableShape) -> list[int]:
    """Returns the number of rows of each chunk."""
    chunks = [1 << _FIRST_CHUNK_LOG2]
    total = chunks[0]  # of a table of 20 billion rows there are 40,000
    while total < table.rows:
        chunks.append(_next_chunk_rows(table, len(chunks)))
        total += chunks[-1]
    return chunks


def _next_chunk_rows(table: TableShape, chunks: int) -> int:
    return 1 << min(_FIRST_CHUNK_LOG2 + chunks - 1, _chunk_log2(table.dim))


def _slots(rows: int) -> int:
    slots = _FIRST_SLOTS
    while rows > slots - slots // 4:
        slots *= 2
    # The next one is created ahead of time, and adopted when it is ready.
    ahead = 2 * slots * _SLOT_BYTES >= _WORTH_A_THREAD and rows > (slots - slots // 4) // 4 * 3
    return 2 * slots if ahead else slots


def _row_chunk_bytes(rows: int, dim: int) -> int:
    return _whole(_whole(_PAGE + 8 * rows, _LINE) + 4 * rows * dim, _PAGE)


def _chunk_bytes(rows: int, floats: int) -> int:
    return _whole(_PAGE + 4 * rows * floats, _PAGE) if floats else 0


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit
