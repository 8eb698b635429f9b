"""What runs the code of pages and examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.forked.python import ForkedPython, forked_python


@pytest.fixture(scope="session")
def python() -> Iterator[ForkedPython]:
    """Runs scripts without waiting for TensorFlow."""
    with forked_python() as python:
        yield python
