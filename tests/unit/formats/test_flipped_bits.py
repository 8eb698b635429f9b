"""Small files that decide something: a flipped bit is noticed, and files of earlier versions load.

Checkpoints, publications, bases, journals and queues have tests of their own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.formats.cluster import PROCESSES, STATE, VIEW
from tests.unit.formats.formats import GOLDEN
from tests.unit.formats.saved import BEST
from tfhybrid.checkpoint import best
from tfhybrid.cluster import membership, placed_processes
from tfhybrid.core import checked_object
from tfhybrid.errors import TfhybridError
from tfhybrid.stream.queues import numbered_writer
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.numbered_writer import Numbered, NumberedWriter
from tfhybrid.stream.queues.queue import Record

STEP = 5  # every fifth bit, so each bit of a byte in turn
NUMBERS = {"web-1": 231, "web-2": 232}


class SmallFile(NamedTuple):
    """A file of one JSON value.

    Attributes:
        content: Bytes that the project writes.
        earlier: The same in the form of earlier versions.
        read: Function that reads the file.
        expected: What `read` returns.
    """

    content: bytes
    earlier: bytes
    read: Callable[[Path], Any]
    expected: Any


def golden(name: str, file: str, earlier: Callable[[dict[str, Any]], Any], *reading: Any):
    content = (GOLDEN / name / file).read_bytes()
    fields = json.loads(content)
    del fields["crc32c"]
    return SmallFile(content, json.dumps(earlier(fields)).encode(), *reading)


def numbers() -> SmallFile:
    last = {name: numbered_writer.LastRecord(number) for name, number in NUMBERS.items()}
    return SmallFile(
        checked_object.encoded({"offset": 233, "last": last}),
        json.dumps([233, NUMBERS]).encode(),
        numbered_writer._read,
        (233, last),
    )


FILES = {
    STATE: golden("membership", STATE, lambda fields: fields, membership.read_view, VIEW),
    best.RECORD: golden(
        "manifest", best.RECORD, lambda fields: fields, lambda path: best.read(path.parent), BEST
    ),
    "plan.json": golden(
        "processes",
        "processes.json",
        lambda fields: fields["processes"],
        placed_processes.read,
        PROCESSES,
    ),
    "producers-video.json": numbers(),
}


def flipped(content: bytes) -> Iterator[bytes]:
    for bit in range(0, 8 * len(content), STEP):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_bit_is_taken_for_another_value(name: str, tmp_path: Path) -> None:
    file, path = FILES[name], tmp_path / name
    refused = 0
    for content in flipped(file.content):
        path.write_bytes(content)
        try:
            assert file.read(path) == file.expected  # white space, or the name of the checksum
        except (TfhybridError, ValueError, KeyError, TypeError):
            refused += 1
    assert refused > 6 * len(file.content) / STEP


@pytest.mark.parametrize("name", FILES)
def test_files_of_earlier_versions_are_read_with_one_warning(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].earlier)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert FILES[name].read(path) == FILES[name].expected
    assert [message.split(",")[0] for message in caplog.messages] == [f"{path} has no checksum"]


def test_a_damaged_file_of_numbers_costs_a_reading_of_the_queue_and_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A digit of a number that has become larger would make new records look like old ones."""
    snapshot = tmp_path / "producers.json"
    writer = NumberedWriter(LogQueue(tmp_path / "queue", write=True), snapshot)
    writer.append([Numbered("web-1", number, Record(b"{}")) for number in range(5)])
    writer.close()
    content = snapshot.read_bytes()
    snapshot.write_bytes(content.replace(b'"web-1": [4', b'"web-1": [6'))
    again = NumberedWriter(LogQueue(tmp_path / "queue", write=True), snapshot)
    assert "is damaged" in caplog.text
    assert again.append([Numbered("web-1", 4, Record(b"{}"))]) == 0
    assert again.append([Numbered("web-1", 5, Record(b"{}"))]) == 1
    again.close()
    assert snapshot.read_bytes() != content
