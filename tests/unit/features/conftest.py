"""Real data, of which tests read every row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import real_data as archives


@pytest.fixture
def real_data() -> Path:
    return archives.directory_or_skip()
