"""What tests on any number of ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhybrid import distributed


def common_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a new directory, the same on all ranks."""
    return Path(distributed.broadcast_object(str(tmp_path_factory.mktemp("checkpoints"))))


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new directory, the same on all ranks, while a job runs."""
    return common_directory(tmp_path_factory)
