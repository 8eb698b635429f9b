"""`tfhybrid stream`: addresses that cannot be are one line, whichever command reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.support.stream.online_site import Site
from tests.support.stream.queue_contract import read_all
from tests.support.stream.stream_file import write_stream
from tfhybrid.cli.main import app
from tfhybrid.rpc.listener import listen
from tfhybrid.stream.feeding.file_records import file_records
from tfhybrid.stream.queues import rows

COLUMNS = {"medium": "string", "item": "int64"}
BAD = ["nonsense", "127.0.0.1:99999", "127.0.0.1:", ":7001", "127.0.0.1:seven"]


def failed(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["stream", *map(str, arguments)])
    assert (result.exit_code, result.stdout) == (1, ""), result.exception
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("address", BAD)
@pytest.mark.parametrize("field", ["sync", "provider"])
@pytest.mark.parametrize("command", ["sync", "provide", "run", "top"])
def test_the_file_has_an_address(tmp_path: Path, command: str, field: str, address: str) -> None:
    config = write_stream(tmp_path, tmp_path, COLUMNS, **{field: address})
    message = failed(command, config)
    assert f"stream.yaml: {field}: An address is HOST:PORT, with a port from 1 to 65535" in message
    assert f"Received: {address!r}" in message


@pytest.mark.parametrize("address", BAD)
def test_options_are_addresses(tmp_path: Path, address: str) -> None:
    config = write_stream(tmp_path, tmp_path, COLUMNS)
    for command in (("serve", config, "ads", "--listen"), ("top", config, "--reader")):
        assert "An address is HOST:PORT" in failed(*command, address)


@pytest.mark.parametrize(("command", "field"), [("sync", "sync"), ("provide", "provider")])
def test_a_process_that_runs_already_is_left_alone(
    tmp_path: Path, command: str, field: str
) -> None:
    """A second provider would end the leases of the first one when it opens the queues."""
    with listen("127.0.0.1") as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = write_stream(tmp_path, tmp_path, COLUMNS, **{field: address})
        message = failed(command, config)
    assert f"Does the process run already? Received: {address}" in message
    assert not (tmp_path / "stream").exists()  # no queue and no journal was opened


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    yield site
    site.close()


ROW = {"item": 1, "history": [2], "medium": "video", "label": 1.0}
LINE = json.dumps(ROW).encode()
ARROW = rows.encode(pa.RecordBatch.from_pylist([ROW, {**ROW, "item": None}])).payload
FILES = {
    "cut.jsonl": (LINE + b"\n" + LINE + b"\n" + LINE[:-5], 2, 1),
    "zeros.jsonl": (LINE + b"\n\r\n" + LINE + b"\n" + b"\0" * 100, 2, 1),
    "two.jsonl": (LINE + b"," + LINE + b"\n" + LINE, 1, 1),
    "mark.jsonl": (b"\xef\xbb\xbf" + LINE + b"\n" + LINE, 2, 0),
    "pretty.json": (json.dumps(ROW, indent=1).encode(), 0, 1),
    "list.json": (json.dumps([ROW, {**ROW, "item": True}], indent=1).encode(), 1, 1),
    "lists.jsonl": (b"[" + LINE + b"," + LINE + b"]\n[" + LINE + b"]\n[7]", 3, 1),
    "rows.arrows": (ARROW, 1, 1),
    "empty.jsonl": (b" \n", 0, 0),
}


@pytest.mark.parametrize("name", [*FILES])
def test_a_malformed_line_of_a_file_costs_one_row(site: Site, tmp_path: Path, name: str) -> None:
    content, good, bad = FILES[name]
    (tmp_path / name).write_bytes(content)
    for new in (good, 0):  # the second time all rows are there
        result = CliRunner().invoke(app, ["stream", "feed", str(site.config), str(tmp_path / name)])
        assert f"{name}: {new} new rows" in result.stdout, result.exception
    letters = (Path(site.settings.folder) / "bad-rows.jsonl").read_text()
    assert letters.count("\n") == bad


def feed(site: Site, file: Path, *options: str) -> str:
    command = ["stream", "feed", str(site.config), str(file), *options]
    result = CliRunner().invoke(app, command)
    return result.stdout if result.exit_code == 0 else result.stderr


def line(item: int, medium: str = "video") -> str:
    return json.dumps({**ROW, "item": item, "medium": medium}) + "\n"


def test_lines_that_were_added_to_a_file_are_the_only_new_ones(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "clicks.jsonl"
    for size, new, rows_of_record in ((1300, 1300, 1000), (2500, 1200, 1000), (2501, 1, 7)):
        file.write_text("".join(map(line, range(size))))
        assert f"{new} new rows" in feed(site, file, f"--rows={rows_of_record}")
    assert items(site, "video") == [*range(2501)]


def test_another_file_under_the_same_path_is_refused(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "clicks.jsonl"
    file.write_text("".join(map(line, range(10))))
    assert "10 new rows" in feed(site, file)
    file.write_text("".join(map(line, range(100, 120))))
    assert "clicks.jsonl must begin with the" in feed(site, file)
    assert items(site, "video") == [*range(10)]


def test_a_record_that_some_queues_have_reaches_the_others(
    tmp_path: Path, shm_directory: Path
) -> None:
    """The provider dies between two queues of a record, and the file is fed again."""
    with closing(Site(tmp_path, shm_directory, media=("video", "news"))) as site:
        file = tmp_path / "clicks.jsonl"
        file.write_text("".join(line(item, "news" if item % 3 else "video") for item in range(20)))
        (record, *_) = file_records(file, 8, None)
        half = [each for each in record.record.payload.split(b"\n") if b'"video"' in each]
        producer = str(file)
        site.provider.put(producer, record.number, rows.of_lines(half), record.position)
        assert "17 new rows" in feed(site, file, "--rows=8")
        assert items(site, "video") == [*range(0, 20, 3)]
        assert items(site, "news") == [item for item in range(20) if item % 3]


def items(site: Site, queue: str) -> list[int]:
    columns = site.settings.row_columns
    batches = [rows.decode(each, columns).batch for each in read_all(site.queue(queue))]
    return [item for batch in batches for item in batch["item"].to_pylist()]
