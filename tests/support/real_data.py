"""The archives of real data: where they are absent tests are skipped, except on CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfhybrid.data.archives import data_directory
from tfhybrid.errors import DataError


def directory_or_skip() -> Path:
    """Returns the folder of the archives; skips the test if there is none."""
    try:
        return data_directory()
    except DataError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
