"""Packages that import their names on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, sources: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's `__getattr__` and `__dir__`, which import names on first use.

    Heavy modules, above all TensorFlow and Horovod, are then imported only when they are needed.

    Args:
        package: Name of the package.
        sources: Module of each public name, relative to the package or by its full name.
        modules: Modules of the package that are also its attributes.

    Returns:
        `__getattr__`, which raises `AttributeError` for other names, and `__dir__`.

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
