"""The reference names every public name, and the guide has the signatures of the code."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import tfhybrid
from tests.unit.documentation import signatures

PAGES = Path(__file__).parents[3] / "docs" / "api"
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
MODULES = ["tfhybrid"] + [
    f"tfhybrid.{name}"
    for name in tfhybrid.__all__
    if isinstance(getattr(tfhybrid, name), ModuleType)
]


def public_names(module: ModuleType) -> set[str]:
    """The names in `__all__` that are no modules; without `__all__`, what the module defines."""
    listed = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if inspect.getmodule(value) is module and callable(value)
    ]
    values = {name: getattr(module, name) for name in listed if not name.startswith("_")}
    return {name for name, value in values.items() if not isinstance(value, ModuleType)}


@pytest.mark.parametrize("name", MODULES)
def test_the_page_has_every_public_name(name: str):
    page = (PAGES / f"{name.rpartition('.')[2]}.md").read_text()
    expected = {f"{name}.{each}" for each in public_names(importlib.import_module(name))}
    assert sorted(ENTRY.findall(page)) == sorted(expected)


@pytest.mark.parametrize("name", MODULES)
def test_the_page_says_where_a_clone_has_the_text(name: str):
    page = (PAGES / f"{name.rpartition('.')[2]}.md").read_text()
    (example,) = re.findall(r"^In a clone, .* `help\((\S+)\)` prints the same text\.$", page, re.M)
    assert example in ENTRY.findall(page)


def test_there_is_no_other_page():
    assert {page.stem for page in PAGES.glob("*.md")} == {n.rpartition(".")[2] for n in MODULES}


def test_the_guide_has_the_signatures_of_the_code():
    """python -m tests.unit.documentation.signatures writes them."""
    page = signatures.PAGE.read_text()
    assert signatures.written(page) == page
