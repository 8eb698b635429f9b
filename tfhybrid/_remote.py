"""Declaration of methods that other processes may call, and of the values that travel.

`tfhybrid.rpc` serves the methods and calls them. This module imports neither pydantic nor the
network, so that every room can declare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import numpy as np

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

_Method = TypeVar("_Method", bound=Callable[..., Any])

_MARK = "_tfhybrid_remote"


def remote(method: _Method) -> _Method:
    """Marks a method that other processes may call.

    Its annotations are checked when a call arrives and when the answer does, so each parameter and
    the result need one. Overrides of the method in subclasses need no mark.

    Args:
        method: Method of a class. Values of its parameters and results are `None`, numbers, texts,
            bytes, NumPy arrays and dtypes, paths, enums, `AsJson`, or dataclasses, named tuples,
            lists and mappings of these.

    Returns:
        The same method.
    """
    setattr(method, _MARK, True)
    return method


def remote_methods(interface: type) -> dict[str, Callable[..., Any]]:
    """Returns the methods of a class that other processes may call, by the name of their call.

    Args:
        interface: Class whose methods, inherited ones included, are marked by `remote`.
    """
    marked = {
        name: getattr(each, name)
        for each in reversed(interface.__mro__)
        for name, method in vars(each).items()
        if is_remote(method)
    }
    return {call_name(method): method for method in marked.values()}


def is_remote(method: object) -> bool:
    """Returns whether `remote` has marked a method.

    Args:
        method: Function of a class, or anything else.
    """
    return hasattr(method, _MARK)


def call_name(method: Callable[..., Any]) -> str:
    """Returns the name of the call of a method, which has its class and its own name.

    Args:
        method: Function of a class, such as `Engine.digest`.

    Raises:
        TypeError: `remote` has not marked the method.
    """
    if not is_remote(method):
        raise TypeError(f"Only methods marked by @remote can be called. Received: {method!r}")
    return method.__qualname__


class OfDtype:
    """Annotation of an array's dtype, `Annotated[np.ndarray, OfDtype(np.int64)]`.

    Arrays of another dtype are refused when they arrive.

    Args:
        dtype: The dtype, as `np.dtype` takes it.
    """

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Returns the check of an array; pydantic calls it."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self._checked)

    def _checked(self, value: Any) -> np.ndarray:
        if not isinstance(value, np.ndarray) or value.dtype != self._dtype:
            received = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"must be an array of {self._dtype}. Received: {received}")
        return value


Int64Array = Annotated[np.ndarray, OfDtype(np.int64)]


class AsJson:
    """Base class of values that travel as the JSON text of `to_json`."""

    def to_json(self) -> str:
        """Returns the value as JSON text, which `from_json` reads. Each subclass overrides it."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the value from the text of `to_json`. Each subclass overrides it.

        Args:
            text: JSON text.
        """
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Returns the check of a text; pydantic calls it."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.from_json)
