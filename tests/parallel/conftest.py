"""Every test runs on all ranks together, in a job of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tfhybrid


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    tfhybrid.init()
    yield
    tfhybrid.shutdown()
