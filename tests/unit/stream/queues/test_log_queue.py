"""A queue in a directory, also where its writer was killed or a file was damaged."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.full_disk import files_up_to
from tests.support.stream import queue_contract
from tfhybrid.core.whole_file import unfinished_of
from tfhybrid.errors import (
    ConfigError,
    CorruptFileError,
    NameTakenError,
    OutOfSpaceError,
    PositionLostError,
    StreamError,
)
from tfhybrid.stream.queues import log_segment, numbered_writer
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.numbered_writer import LastRecord, Numbered, NumberedWriter
from tfhybrid.stream.queues.queue import Record


def _records(*numbers: int) -> list[Record]:
    return [Record(b"record %d" % number) for number in numbers]


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


@pytest.mark.parametrize("segment_bytes", [1, 5000, 1 << 20])
def test_contract(tmp_path: Path, segment_bytes: int):
    def queue(name: str) -> LogQueue:
        return LogQueue(tmp_path / name, write=True, segment_bytes=segment_bytes)

    queue_contract.check_order_and_offsets(queue("order"))
    queue_contract.check_the_end(queue("end"))
    queue_contract.check_numbers(queue("numbers"), tmp_path / "numbers.json")
    queue_contract.check_positions(lambda: queue("positions"), tmp_path / "positions.json")
    queue_contract.check_reading_alone(LogQueue(tmp_path / "order"))
    # One that reads alone, and one that is opened again, see the same.
    written = queue_contract.read_all(LogQueue(tmp_path / "order"))
    assert len(written) == 30


def test_retention_behind_the_snapshot_keeps_numbers_and_positions(tmp_path: Path):
    def writer() -> NumberedWriter:
        queue = LogQueue(tmp_path / "q", write=True, segment_bytes=1, retention_bytes=100)
        return NumberedWriter(queue, tmp_path / "numbers.json")

    first = writer()
    fed = Numbered("feed", 7, Record(b"fed"), "line 8")
    first.append([fed])
    first.close()  # writes the snapshot
    later = writer()
    for number in range(20):
        later.append([Numbered("web", number, Record(b"clicked"))])
    assert later.queue.begin() > 1
    later.queue.close()  # as after kill -9: without another snapshot
    again = writer()
    assert again.last("feed") == LastRecord(7, "line 8")
    assert again.append([fed]) == 0
    again.close()


def test_numbers_that_cannot_be_written_cost_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(numbered_writer, "_SNAPSHOT_RECORDS", 2)
    snapshot = tmp_path / "numbers.json"
    sent = [Numbered("web", number, Record(b"clicked")) for number in range(9)]
    writer = NumberedWriter(LogQueue(tmp_path / "q", write=True), snapshot)
    in_the_way = unfinished_of(snapshot)
    in_the_way.mkdir()
    assert [writer.append([each]) for each in sent[:4]] == [1, 1, 1, 1]
    assert caplog.text.count(f"{snapshot} could not be written") == 2
    in_the_way.rmdir()
    assert writer.append(sent[:6]) == 2
    assert snapshot.exists()
    with files_up_to(0):
        writer.close()
    assert caplog.text.count(f"{snapshot} could not be written") == 3
    again = NumberedWriter(LogQueue(tmp_path / "q", write=True), snapshot)
    assert again.append(sent) == 3
    again.close()


def test_a_reader_follows_a_writer(tmp_path: Path):
    writer = LogQueue(tmp_path / "q", write=True, segment_bytes=40)
    reader = LogQueue(tmp_path / "q")
    for i in range(20):
        assert reader.read(i).records == ()
        writer.append(_records(i))
        assert [record for _, record in reader.read(i).records] == _records(i)
        assert reader.end() == i + 1


def test_reading_waits_for_what_comes(tmp_path: Path):
    LogQueue(tmp_path / "q", write=True).close()
    child = multiprocessing.get_context("spawn").Process(target=_append, args=(tmp_path / "q",))
    child.start()
    assert LogQueue(tmp_path / "q").read(0, wait_seconds=60).records[0].record == _records(0)[0]
    child.join()


def test_a_torn_tail_is_cut_wherever_the_writer_was_killed(tmp_path: Path):
    queue = LogQueue(tmp_path / "q", write=True)
    queue.append(_records(0, 1))
    whole = _segments(tmp_path / "q")[0].stat().st_size
    queue.append(_records(2))
    queue.close()
    (file,) = _segments(tmp_path / "q")
    content = file.read_bytes()
    for size in range(whole, len(content)):
        file.write_bytes(content[:size])
        assert LogQueue(tmp_path / "q").end() == 2
        with_tail_cut = LogQueue(tmp_path / "q", write=True)
        assert file.stat().st_size == whole
        with_tail_cut.append(_records(9))
        assert queue_contract.read_all(with_tail_cut) == _records(0, 1, 9)
        with_tail_cut.close()


@settings(deadline=None)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_believed(tmp_path_factory, place: int, bit: int):
    """In a record that others follow it is an error; the last one is a torn tail then."""
    folder = tmp_path_factory.mktemp("flipped")
    queue = LogQueue(folder, write=True)
    queue.append(_records(0, 1))
    (file,) = _segments(folder)
    last = file.stat().st_size
    queue.append(_records(2))
    queue.close()
    content = bytearray(file.read_bytes())
    place %= len(content)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    if place >= last:
        assert queue_contract.read_all(LogQueue(folder)) == _records(0, 1)
        return
    with pytest.raises(CorruptFileError):
        LogQueue(folder, write=True)
    with pytest.raises(CorruptFileError):
        LogQueue(folder).read(0)


def test_a_damaged_record_before_others_stops_readers_and_writer(tmp_path: Path):
    queue = LogQueue(tmp_path / "q", write=True, segment_bytes=60)
    queue.append(_records(0, 1))
    queue.append(_records(2, 3))
    queue.close()
    for file in _segments(tmp_path / "q")[:2]:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"0000\.log is damaged at byte"):
        queue_contract.read_all(LogQueue(tmp_path / "q", write=True))


def test_a_reader_knows_no_end_behind_a_damaged_record(tmp_path: Path):
    LogQueue(tmp_path / "q", write=True).append(_records(0, 1, 2))
    (file,) = _segments(tmp_path / "q")
    content = file.read_bytes()
    damaged = content.index(b"record 0")
    file.write_bytes(content[:damaged] + b"R" + content[damaged + 1 :])
    with pytest.raises(CorruptFileError, match="is damaged at byte 24, where record 0"):
        LogQueue(tmp_path / "q").end()


def test_a_record_that_its_writer_finishes_meanwhile_is_not_damaged(tmp_path: Path):
    LogQueue(tmp_path / "q", write=True).append(_records(0, 1, 2))
    queue = LogQueue(tmp_path / "q")
    reader = queue._reader(0)  # which has seen a part of record 0
    queue._check_torn(0, reader, None)
    assert reader.next() == _records(0)[0]


def test_retention_passed_the_position(tmp_path: Path):
    queue = LogQueue(tmp_path / "q", write=True, segment_bytes=100, retention_bytes=250)
    for i in range(50):
        queue.append(_records(i))
    assert 0 < queue.begin() < 50
    with pytest.raises(PositionLostError, match=r"offset 0.*removed the records before"):
        queue.read(0)
    kept = queue_contract.read_all(queue, queue.begin())
    assert kept == _records(*range(queue.begin(), 50))
    old = LogQueue(tmp_path / "q", write=False, segment_bytes=100)
    assert old.begin() == queue.begin()


def test_retention_by_age(tmp_path: Path):
    queue = LogQueue(tmp_path / "q", write=True, segment_bytes=100, retention_seconds=3600)
    for i in range(20):
        queue.append(_records(i))
    for file in _segments(tmp_path / "q")[:-2]:
        os.utime(file, (time.time() - 7200,) * 2)
    while queue.begin() == 0:
        queue.append(_records(0))
    assert len(_segments(tmp_path / "q")) == 3


def test_records_that_were_read_and_are_gone_are_noticed(tmp_path: Path):
    queue = LogQueue(tmp_path / "q", write=True, fsync="never")
    queue.append(_records(0, 1, 2))
    queue.close()
    (file,) = _segments(tmp_path / "q")
    os.truncate(file, file.stat().st_size - 1)  # a power cut
    with pytest.raises(PositionLostError, match="have been lost"):
        LogQueue(tmp_path / "q", write=True).read(3)
    with pytest.raises(PositionLostError, match="have been lost"):
        LogQueue(tmp_path / "q").read(3)


def test_one_process_writes_and_kill_9_frees_the_queue(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    child = context.Process(target=_append_for_ever, args=(tmp_path / "q", its))
    child.start()
    acknowledged = ours.recv()
    with pytest.raises(NameTakenError, match="Another process writes"):
        LogQueue(tmp_path / "q", write=True)
    while acknowledged < 200:
        acknowledged = ours.recv()
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    while ours.poll():
        try:
            acknowledged = ours.recv()
        except EOFError:
            break
    read = queue_contract.read_all(LogQueue(tmp_path / "q", write=True))
    assert len(read) >= acknowledged
    assert read == _records(*range(len(read)))


def test_a_full_disk_leaves_the_queue_as_it_was(tmp_path: Path, monkeypatch):
    queue = LogQueue(tmp_path / "q", write=True)
    queue.append(_records(0))
    with open("/dev/full", "wb") as full:  # any write to it says that the disk is full
        file = queue._files[0]
        kept = os.dup(file)
        monkeypatch.setattr(os, "ftruncate", lambda *_: None)
        os.dup2(full.fileno(), file)
        with pytest.raises(OutOfSpaceError, match="None was written"):
            queue.append(_records(1))
        os.dup2(kept, file)
        os.close(kept)
    monkeypatch.undo()
    queue.append(_records(2))
    assert queue_contract.read_all(queue) == _records(0, 2)


@pytest.mark.parametrize("created", [False, True], ids=["not created", "not opened"])
def test_records_are_stored_or_refused_when_the_next_file_cannot_be_started(
    tmp_path: Path, created: bool
):
    queue = LogQueue(tmp_path / "q", write=True, segment_bytes=1)
    queue.append(_records(0))
    path = log_segment.path_of(tmp_path / "q", 2)
    in_the_way = path if created else unfinished_of(path)
    in_the_way.mkdir()
    assert queue.append(_records(1)) == 2  # stored, so it is no error
    with pytest.raises(OutOfSpaceError, match="None was written"):
        queue.append(_records(2))
    in_the_way.rmdir()
    assert queue_contract.read_all(queue) == _records(0, 1)
    queue.append(_records(2))
    assert queue_contract.read_all(queue) == _records(0, 1, 2)
    queue.close()
    assert queue_contract.read_all(LogQueue(tmp_path / "q")) == _records(0, 1, 2)


def test_what_cannot_be(tmp_path: Path):
    with pytest.raises(ConfigError, match="'always' or 'never'"):
        LogQueue(tmp_path, fsync="sometimes")
    with pytest.raises(StreamError, match="no queue in"):
        LogQueue(tmp_path / "missing")


def _append(folder: Path) -> None:
    LogQueue(folder, write=True).append(_records(0))


def _append_for_ever(folder: Path, test) -> None:
    queue = LogQueue(folder, write=True, fsync="never", segment_bytes=1000)
    number = 0
    while True:
        queue.append(_records(number))
        number += 1
        test.send(number)
