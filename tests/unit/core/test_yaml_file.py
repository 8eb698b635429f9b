"""Files of settings: what is in them, and on which line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhybrid.core.yaml_file import YamlFile
from tfhybrid.errors import ConfigError

TEXT = """\
# Comments count as lines.
data:
  files: [a, b]
  steps:
    - every: 1_000
      rate: 1e-3
    - every: yes
7: null
"""


@pytest.fixture
def file(tmp_path: Path) -> YamlFile:
    path = tmp_path / "settings.yaml"
    path.write_text(TEXT)
    return YamlFile(path)


def test_content_is_of_plain_types(file: YamlFile) -> None:
    steps = [{"every": 1000, "rate": 0.001}, {"every": "yes"}]
    assert file.content == {"data": {"files": ["a", "b"], "steps": steps}, 7: None}
    assert type(file.content["data"]["steps"][0]["rate"]) is float


@pytest.mark.parametrize(
    ("location", "line"),
    [
        ((), 1),
        (("data",), 2),
        (("data", "files", 1), 3),
        (("data", "steps", 1, "every"), 7),
        (("data", "steps", 0, "missing"), 5),
        ((7,), 8),
        (("data", "files", 1, "deeper"), 3),
    ],
)
def test_a_setting_has_its_line(file: YamlFile, location, line) -> None:
    name = ".".join(map(str, location))
    assert file.at(*location) == f"{file.path}:{line}" + (f": {name}" if name else "")


def test_other_fields_are_refused(file: YamlFile) -> None:
    data = file.content["data"]
    assert file.check(("files", "steps", "more"), data, "data") is data
    message = r"yaml:4: data\.steps: the fields must be from \('files',\)\. Received: 'steps'$"
    with pytest.raises(ConfigError, match=message):
        file.check(("files",), data, "data")
    with pytest.raises(ConfigError, match=r"yaml:8: 7: the fields must be .*Received: None$"):
        file.check(("files",), file.content[7], 7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: {c: 1, c: 2}", r'yaml:2: found duplicate key "c"'),
        (b"a: [", r"yaml:1: expected the node content"),
        (b"\xff", "yaml cannot be read: "),
        (None, "yaml cannot be read: "),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content, message) -> None:
    path = tmp_path / "settings.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        YamlFile(path)
