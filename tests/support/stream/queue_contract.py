"""What every kind of queue must do; the tests of each kind run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tfhybrid.errors import DataError, PositionLostError, StreamError
from tfhybrid.stream.queues.numbered_writer import LastRecord, Numbered, NumberedWriter
from tfhybrid.stream.queues.queue import Queue, Record


def read_all(queue: Queue, offset: int = 0, most: int = 1000) -> list[Record]:
    """Returns the records from an offset to the end, in slices of at most so many."""
    found: list[Record] = []
    end = queue.end()
    while offset < end:
        piece = queue.read(offset, max_records=most, wait_seconds=60)
        assert piece.next_offset > offset
        found += (record for _, record in piece.records)
        offset = piece.next_offset
    return found


def check_order_and_offsets(queue: Queue) -> None:
    """Records come back in order, whole, from any offset on, in slices of any size."""
    records = [Record(bytes([i]) * i * 100, {"i": str(i), "ö": "ü"}) for i in range(30)]
    assert queue.begin() == queue.end() == 0
    queue.append(records[:1])
    ends = [queue.append(records[1:20]), queue.append(records[20:])]
    assert ends == sorted(ends)
    for most in (1, 7, 1000):
        assert read_all(queue, most=most) == records
    stored = queue.read(0, wait_seconds=60).records
    for i in (29, 0, 17, 18, 3):
        assert queue.read(stored[i].offset, max_records=1, wait_seconds=60).records == (stored[i],)


def check_the_end(queue: Queue) -> None:
    """At the end there is nothing, and no waiting if none is wanted; beyond it is an error."""
    queue.append([Record(b"one")])
    end = queue.end()
    assert queue.read(end).records == ()
    with pytest.raises(PositionLostError, match=r"read from offset"):
        queue.read(end + 10)
    queue.append([Record(b"two")])
    assert [r.payload for r in read_all(queue, end)] == [b"two"]


def check_numbers(queue: Queue, snapshot: Path) -> None:
    """A producer's record is taken once: sent again, by a new writer, without the snapshot."""
    for _ in range(2):
        writer = NumberedWriter(queue, snapshot)
        new = [Numbered("a", i, Record(b"a%d" % i)) for i in range(3)]
        writer.append([*new, Numbered("b", 7, Record(b"b7")), new[-1]])
    assert writer.append([Numbered("a", 3, Record(b"a3")), Numbered("b", 6, Record(b"b6"))]) == 1
    payloads = [record.payload for record in read_all(queue)]
    assert payloads == [b"a0", b"a1", b"a2", b"b7", b"a3"]
    assert NumberedWriter(queue, snapshot).append([Numbered("a", 3, Record(b"a3"))]) == 0


def check_positions(opened: Callable[[], Queue], snapshot: Path) -> None:
    """The last position of a producer is known, and only its record counts as sent again."""
    sent = [Numbered("a", number, Record(b"a"), f"to {number}") for number in range(3)]
    for new in (3, 0, 0):  # by the first writer, with its snapshot, and without one
        writer = NumberedWriter(opened(), snapshot)
        assert writer.append(sent[-1:] if new == 0 else sent) == new
        for other in (sent[1], sent[2]._replace(position="to 7")):
            with pytest.raises(DataError, match="Is another process feeding the same source"):
                writer.append([sent[2]._replace(producer="b"), other])
        assert writer.last("a") == LastRecord(2, "to 2")
        assert writer.last("b") is None
        writer.close()
        if new == 0:
            snapshot.unlink()


def check_reading_alone(reader: Queue) -> None:
    """Who opened it to read cannot append."""
    with pytest.raises(StreamError, match="open for reading only"):
        reader.append([Record(b"")])
