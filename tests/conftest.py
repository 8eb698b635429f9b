"""What tests of every kind share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def job() -> Iterator[None]:
    """A job of the test's own; its store is gone when the test ends."""
    import tfhybrid

    tfhybrid.init()
    yield
    tfhybrid.shutdown()
