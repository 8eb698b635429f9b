from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stream.model_folder import ModelFolder


@pytest.fixture
def folder(tmp_path: Path, shm_directory: Path) -> Iterator[ModelFolder]:
    folder = ModelFolder(tmp_path / "models" / "ads", shm_directory)
    yield folder
    folder.close()
