"""Examples in docstrings run, and show what comes of them."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfhybrid

ROOT = Path(__file__).resolve().parents[2]
WITH_EXAMPLES = [
    file for file in sorted((ROOT / "tfhybrid").rglob("*.py")) if ">>> " in file.read_text()
]


@pytest.fixture(autouse=True)
def _job() -> Iterator[None]:
    tfhybrid.init(seed=0)
    yield
    tfhybrid.shutdown()


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_examples_run(file):
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert tried > 0
    assert failed == 0
