"""Fixtures of serving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stream.online_site import Site


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path, job: None) -> Iterator[Site]:
    """A site of online training that publishes the model `ads` on request."""
    publish = {"ads": {"folder": str(tmp_path / "publications"), "seconds": 1e6}}
    site = Site(tmp_path, shm_directory, publish=publish)
    yield site
    site.close()
