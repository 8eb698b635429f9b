"""A Horovod that was not built for tfhybrid is told from the one that was, and is named."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata

import pytest

from tfhybrid import _horovod
from tfhybrid.cli.doctor import findings
from tfhybrid.cli.doctor.findings import Level


@pytest.fixture
def installed(monkeypatch) -> None:
    """The version of Horovod's package is that of the one that is built for tfhybrid."""
    monkeypatch.setattr(metadata, "version", lambda _: _horovod.VERSION)


@pytest.mark.usefixtures("installed")
def test_the_horovod_that_was_built_for_tfhybrid_is_not_foreign() -> None:
    assert _horovod.foreign(_horovod.VERSION) == ""


def test_a_horovod_of_a_public_index_is_foreign(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "0.28.1")
    assert _horovod.foreign("0.28.1") == "0.28.1, which was not built for tfhybrid"


@pytest.mark.usefixtures("installed")
def test_files_that_another_package_has_replaced_are_found() -> None:
    assert "files of version 0.28.1, but pip has installed 0.28.1+" in _horovod.foreign("0.28.1")


@pytest.mark.parametrize(
    ("version", "level"), [(_horovod.VERSION, Level.GOOD), ("0.28.1", Level.WARNING)]
)
@pytest.mark.usefixtures("installed")
def test_the_doctor_names_a_foreign_horovod(version, level, monkeypatch) -> None:
    answer = subprocess.CompletedProcess([], 0, json.dumps([["gloo"], version]), "")
    monkeypatch.setattr(findings, "_python", lambda *_: answer)
    finding = findings.horovod()
    assert (finding.level, "another package" in finding.state) == (level, level == Level.WARNING)
    assert ("pip uninstall horovod" in finding.mend) == (level == Level.WARNING)
