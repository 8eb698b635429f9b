"""Code that must not warn."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Makes an error of each warning, except of what earlier tests have left to be collected."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)
        yield
