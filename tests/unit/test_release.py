"""The version is written once, and the newest release note is about it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from tfhybrid._version import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_newest_changelog_entry_is_this_version():
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == __version__


def test_installed_metadata_is_this_version():
    assert metadata.version("tfhybrid") == __version__


def test_licence_is_apache_2():
    first_lines = (ROOT / "LICENSE").read_text().split()[:4]
    assert first_lines == ["Apache", "License", "Version", "2.0,"]
