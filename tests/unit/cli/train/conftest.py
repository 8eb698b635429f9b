"""Each test of `tfhybrid train` in this process begins without a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tfhybrid


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """Ends the job that a test has begun."""
    yield
    tfhybrid.shutdown()
