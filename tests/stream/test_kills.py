"""`kill -9` of provider, sync unit, trainers and broker: each row is in the weights once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.stream.killed_site import check_kills

KILLS = int(os.environ.get("TFHYBRID_STREAM_KILLS", "10"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["directory", "kafka"])
def test_each_row_is_in_the_weights_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, shm_directory: Path
):
    broker = request.getfixturevalue("broker") if kind == "kafka" else None
    check_kills(KILLS, broker, tmp_path, shm_directory)
