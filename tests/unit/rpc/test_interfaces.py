"""Remote methods of the package: each can be checked, and no message breaks the check."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfhybrid
from tfhybrid._remote import remote_methods
from tfhybrid.errors import TfhybridError
from tfhybrid.rpc.remote_methods import Called, call_to, served

PACKAGE = Path(tfhybrid.__file__).parent


def interfaces() -> Iterator[type]:
    """Yields the classes of the package with a method that is marked by `remote`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(each, ast.FunctionDef)
                and any(ast.unparse(mark) == "remote" for mark in each.decorator_list)
                for each in node.body
            ):
                module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
                yield getattr(importlib.import_module(module), node.name)


INTERFACES = list(interfaces())
METHODS = {name: each for of in INTERFACES for name, each in remote_methods(of).items()}


class ReachedError(TfhybridError):
    """Raised in place of a method's body."""


class Receiver:
    def __getattr__(self, name: str) -> Any:
        def reached(**_: Any) -> None:
            raise ReachedError(name)

        return reached


def calls() -> dict[str, Called]:
    found: dict[str, Called] = {}
    for interface in INTERFACES:
        found |= served(Receiver(), interface)
    return found


CALLS = calls()
PARAMETERS = {name for each in METHODS.values() for name in inspect.signature(each).parameters}
MARKS = ("$array", "$bytes", "$dtype", "$records", "$$", "names", "formats", "key", "0", "on")
WORDS = st.sampled_from([*sorted(PARAMETERS), *MARKS])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
ARRAYS = {"0": np.arange(3), "1": np.zeros((2, 2), np.float32), "2": np.zeros(0, np.uint8)}


def test_there_are_the_interfaces_of_each_kind_of_process() -> None:
    names = {each.__name__ for each in INTERFACES}
    assert names >= {"Engine", "TableWriter", "MetadataNode", "DataStream", "Provider", "SyncUnit"}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_arguments_at_all_are_refused_or_enough(name: str) -> None:
    method = METHODS[name]
    parameters = list(inspect.signature(method).parameters.values())[1:]
    enough = all(each.default is not each.empty for each in parameters)
    with pytest.raises(TfhybridError) as raised:
        CALLS[name]({}, {})
    assert isinstance(raised.value, ReachedError) == enough
    if enough:
        assert call_to(method).name == name


@given(st.sampled_from(sorted(METHODS)), st.data())
def test_whatever_arrives_is_refused_or_reaches_the_method(name: str, data: st.DataObject) -> None:
    parameters = list(inspect.signature(METHODS[name]).parameters)[1:]
    arguments = {each: data.draw(VALUES) for each in parameters}
    arguments |= data.draw(st.dictionaries(WORDS, VALUES, max_size=2))
    with pytest.raises(TfhybridError):
        CALLS[name](arguments, ARRAYS)
