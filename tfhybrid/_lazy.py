"""Packages whose names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, sources: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package.

    What is heavy, TensorFlow and Horovod above all, is then imported only by those who use it.

    Args:
        package: Its name.
        sources: Its public names, and the module that each comes from: of the package, or by its
            whole name.
        modules: Modules of the package that are reached as its attributes, too.

    Example:

    ```python
    __getattr__, __dir__ = lazy(__name__, {"Table": "table"})
    ```
    """

    def get(name: str) -> Any:
        if name in sources:
            source = sources[name]
            whole = source if source.startswith("tfhybrid.") else f"{package}.{source}"
            value = getattr(import_module(whole), name)
        elif name in modules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sources, *modules})

    return get, names
