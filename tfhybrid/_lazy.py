"""Packages that import their names on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, sources: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's `__getattr__` and `__dir__`, which import each name on its first use.

    With them, heavy modules such as TensorFlow and Horovod are imported only when they are needed.

    Args:
        package: Full name of the package, its `__name__`.
        sources: Module of each public name: its name in the package, such as `"table"`, or its full
            name, which begins with `tfhybrid.`.
        modules: Names of the package's modules that are public, too. Default: none.

    Returns:
        `__getattr__` and `__dir__`. `__getattr__` raises `AttributeError` for a name that is in
        neither `sources` nor `modules`, and `ImportError` if a module cannot be imported.

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
