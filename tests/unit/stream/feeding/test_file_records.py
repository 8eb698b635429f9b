"""What was fed of a file is known by its content: lines may be added, nothing else may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhybrid.errors import DataError
from tfhybrid.stream.feeding.file_records import FileRecord, file_records
from tfhybrid.stream.queues.numbered_writer import LastRecord


def lines(numbers: range) -> bytes:
    return b"".join(b'{"item": %d}\n' % number for number in numbers)


def fed(file: Path, rows: int = 10, last: LastRecord | None = None) -> list[FileRecord]:
    return list(file_records(file, rows, last))


def last_of(records: list[FileRecord]) -> LastRecord:
    return LastRecord(records[-1].number, records[-1].position)


def items(records: list[FileRecord]) -> list[bytes]:
    return [line for record in records for line in record.record.payload.split(b"\n")]


@pytest.mark.parametrize("again", [1, 7, 1000])
@pytest.mark.parametrize("upto", [10, 13, 20])
def test_added_lines_are_the_only_new_ones(tmp_path: Path, upto: int, again: int) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(range(upto)))
    first = fed(file)
    file.write_bytes(lines(range(35)))
    repeated, *new = fed(file, again, last_of(first))
    assert repeated == first[-1]
    assert items([*first, *new]) == lines(range(35)).splitlines()
    assert [each.number for each in new] == sorted(
        {each.number for each in new} - {first[-1].number}
    )
    assert sum(each.lines for each in [*first, *new]) == 35


def test_nothing_is_new_in_a_file_that_did_not_change(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\xef\xbb\xbf\n" + lines(range(25)) + b"\n\n")
    first = fed(file)
    assert fed(file, 3, last_of(first)) == first[-1:]


@pytest.mark.parametrize(
    "content",
    [
        lines(range(100, 135)),  # the next day's file under the same name
        lines(range(19)),  # cut off
        lines(range(20)).replace(b'"item": 3', b'"item": 8'),
        b"",
    ],
)
def test_another_file_of_the_same_name_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(range(20)))
    last = last_of(fed(file))
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"a.jsonl must begin with the \d+ bytes that were fed"):
        fed(file, last=last)


@pytest.mark.parametrize("end", [b'{"item": 1', b'{"item": 1}', b'{"item": 1}\r'])
def test_a_line_that_has_grown_is_refused(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(range(3)) + end)
    last = last_of(fed(file))
    file.write_bytes(lines(range(3)) + end + b"\n" + lines(range(2)))
    with pytest.raises(DataError, match="up to the middle of a line, which has grown since"):
        fed(file, last=last)


def test_a_file_that_is_one_record_cannot_grow(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'[\n{"item": 1}\n]\n')
    last = last_of(fed(file))
    file.write_bytes(b'[\n{"item": 1}\n]\n[\n{"item": 2}\n]\n')
    with pytest.raises(DataError, match="only files of lines may grow"):
        fed(file, last=last)


def test_lines_that_are_lists_may_be_added(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'[{"item": 1}]\n')
    first = fed(file)
    file.write_bytes(b'[{"item": 1}]\n[{"item": 2}]\n[{"item": 3}]\n')
    repeated, *new = fed(file, last=last_of(first))
    assert repeated.position == first[-1].position
    assert items(new) == [b'[{"item": 2}]', b'[{"item": 3}]']


def test_a_record_without_a_digest_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(range(20)))
    with pytest.raises(DataError, match=r"kept no digests.*Received: record 1"):
        fed(file, last=LastRecord(1))
