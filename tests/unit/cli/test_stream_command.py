"""`tfhybrid stream`: addresses that cannot be are one line, whichever command reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.stream.stream_file import write_stream
from tfhybrid.cli.main import app

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
