"""Old names that work for one more release, with a `DeprecationWarning` that names the new ones.

Every function takes the old names as keywords and the new ones as their values, so that
`tests/unit/test_deprecated.py` finds each alias in the source and lists it.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warns that an old name was used.

    Args:
        old: Old name.
        new: Name to use instead.
        stacklevel: Number of frames between `warnings.warn` and the code to blame. Default 3: the
            caller of the function that calls this one.
    """
    message = f"`{old}` is deprecated: use `{new}`. The next release drops the old name."
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def run_renamed(old: str, new: str) -> NoReturn:
    """Warns that a process was started by an old command, and replaces it by the new one.

    Args:
        old: Old command, without its arguments.
        new: Command of `tfhybrid` to use instead, which takes the same arguments.
    """
    warn_renamed(old, new)
    command = (sys.executable, "-m", "tfhybrid.cli", *new.split()[1:], *sys.argv[1:])
    os.execv(sys.executable, command)


def renamed_names(get: Callable[[str], Any], **aliases: str) -> Callable[[str], Any]:
    """Returns a module's `__getattr__` that also finds names under their old spelling.

    Each use of an old name warns, by a `DeprecationWarning`.

    Args:
        get: The module's own `__getattr__`, e.g. of `tfhybrid._lazy.lazy`. It finds the new names.
        **aliases: New name of each old one.

    Example:

    ```python
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
    __getattr__ = renamed_names(__getattr__, Position="QueuePosition")
    ```
    """

    def get_renamed(name: str) -> Any:
        if name in aliases:
            warn_renamed(name, aliases[name])
            return get(aliases[name])
        return get(name)

    return get_renamed


def moved_names(get: Callable[[str], Any] | None = None, **aliases: str) -> Callable[[str], Any]:
    """Returns a module's `__getattr__` that also finds names which the module no longer offers.

    Each use of such a name warns, by a `DeprecationWarning`.

    Args:
        get: The module's own `__getattr__`. Default `None`: all other names raise `AttributeError`.
        **aliases: Full name to use instead, by the name that is gone.

    Returns:
        `__getattr__`, which raises `AttributeError` for names that neither `get` nor `aliases` has.

    Example:

    ```python
    __getattr__ = moved_names(TableProxy="tfhybrid.layers.table_proxy.TableProxy")
    ```
    """

    def get_moved(name: str) -> Any:
        if name in aliases:
            warn_renamed(name, aliases[name])
            module, _, attribute = aliases[name].rpartition(".")
            return getattr(importlib.import_module(module), attribute)
        if get is None:
            raise AttributeError(name)
        return get(name)

    return get_moved


def renamed_arguments(**aliases: str) -> Callable[[_Function], _Function]:
    """Returns a decorator of a function that also takes keyword arguments by their old names.

    Each use of an old name warns, by a `DeprecationWarning`.

    Args:
        **aliases: New name of each old one.

    Raises:
        TypeError: A caller passes an argument by both names.

    Example:

    ```python
    @renamed_arguments(share="shard")
    def read(shard: int = 0): ...
    ```
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            for old in [name for name in named if name in aliases]:
                new = aliases[old]
                if new in named:
                    raise TypeError(f"{function.__qualname__}() got both {old!r} and {new!r}.")
                warn_renamed(old, new)
                named[new] = named.pop(old)
            return function(*arguments, **named)

        return call  # type: ignore[return-value]

    return decorate


def renamed_value(value: Any, *, stacklevel: int = 3, **aliases: str) -> Any:
    """Returns the value of an argument, by its new name if it is an old one.

    An old one warns, by a `DeprecationWarning`.

    Args:
        value: Value that the caller passed.
        stacklevel: Number of frames between `warnings.warn` and the code to blame, without the one
            of this function. Default 3: the caller of the function that calls this one.
        **aliases: New name of each old value.
    """
    if not isinstance(value, str) or value not in aliases:
        return value
    warn_renamed(value, aliases[value], stacklevel=stacklevel + 1)
    return aliases[value]


def renamed_attributes(**aliases: str) -> Callable[[_Class], _Class]:
    """Returns a decorator of a class whose attributes can also be read by their old names.

    Each use of an old name warns, by a `DeprecationWarning`.

    Args:
        **aliases: New name of each old one.

    Example:

    ```python
    @renamed_attributes(share="shard")
    @dataclasses.dataclass
    class Owner:
        shard: int
    ```
    """

    def getter(old: str, new: str) -> property:
        def get(self: Any) -> Any:
            warn_renamed(old, new)
            return getattr(self, new)

        return property(get)

    def decorate(cls: _Class) -> _Class:
        for old, new in aliases.items():
            setattr(cls, old, getter(old, new))
        return cls

    return decorate


def renamed_fields(**aliases: str) -> Callable[[_Class], _Class]:
    """Returns a decorator of a dataclass whose fields also have their old names.

    The old names work as arguments of the class and as attributes. Each use of one warns, by a
    `DeprecationWarning`.

    Args:
        **aliases: New name of each old one.

    Raises:
        TypeError: A caller passes a field by both names.

    Example:

    ```python
    @renamed_fields(share="shard")
    @dataclasses.dataclass
    class Owner:
        shard: int
    ```
    """

    def decorate(cls: _Class) -> _Class:
        cls.__init__ = renamed_arguments(**aliases)(cls.__init__)  # type: ignore[misc]
        return renamed_attributes(**aliases)(cls)

    return decorate


def renamed_keys(fields: Any, **aliases: str) -> Any:
    """Returns the fields of a settings file, with keys under their new names.

    Each renamed key warns, by a `DeprecationWarning`.

    Args:
        fields: Fields as read from the file. If both names of a key are there, both stay, and the
            reader refuses the old one. What is no mapping is returned as it is, for the reader to
            refuse.
        **aliases: New name of each old one.
    """
    if not isinstance(fields, dict):
        return fields
    renamed = dict(fields)
    for old, new in aliases.items():
        if old in renamed and new not in renamed:
            warn_renamed(old, new)
            renamed[new] = renamed.pop(old)
    return renamed
