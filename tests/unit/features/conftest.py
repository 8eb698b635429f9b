"""The archives of real data: where they are absent tests are skipped, except on CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfhybrid.data.archives import data_directory
from tfhybrid.errors import DataError


@pytest.fixture
def real_data() -> Path:
    try:
        return data_directory()
    except DataError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
