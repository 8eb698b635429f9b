"""Calls of remote methods: their declaration by `tfhybrid._remote.remote` is all that they need.

`call_to` makes the request of a call, and `served` answers it. Both check values by the method's
annotations. A method of an object that the other end looks up, such as one of several models, is
called with a target that names the object.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import numpy as np
import pydantic

from tfhybrid._remote import call_name, is_remote, remote_methods
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.encoding import Encoder, decoded
from tfhybrid.rpc.messages import Arrays

Arguments = dict[str, Any]
ReceivedArrays = dict[str, np.ndarray]
Answer = tuple[Any, Arrays]
Called = Callable[[Arguments, ReceivedArrays], Answer]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TARGET = "on"  # argument with the target; no remote method has a parameter of this name
_CONFIG = pydantic.ConfigDict(arbitrary_types_allowed=True, extra="forbid")


@dataclasses.dataclass(frozen=True)
class Call(Generic[_T]):
    """Call of a remote method, to send.

    Args:
        name: Name of the call.
        method: The method.
        arguments: JSON-serializable arguments.
        arrays: Arrays of the arguments, by name.
    """

    name: str
    method: Callable[..., _T]
    arguments: Mapping[str, Any]
    arrays: Arrays

    def result(self, response: Any, arrays: ReceivedArrays, peer: str) -> _T:
        """Returns the result of the method from the response of the other end.

        Args:
            response: Result in the response.
            arrays: Arrays of the response, by name.
            peer: Name of the other end, for errors.

        Raises:
            StoreError: The result has another type than the method's annotation.
        """
        try:
            checked = _signature(self.method).result(decoded(response, arrays))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"{peer} sent an invalid result of {self.name}: {_reason(error)}"
            ) from error
        return cast(_T, checked)


def call_to(
    method: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs
) -> Call[_T]:
    """Returns the call of a remote method.

    Args:
        method: Function of a class, such as `Engine.digest`.
        *args: Positional arguments of the method after `self`.
        **kwargs: Keyword arguments of the method.

    Raises:
        TypeError: The method is not remote, or an argument cannot travel.
    """
    return _call(method, args, kwargs)


def call_on(
    target: Any, method: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs
) -> Call[_T]:
    """Returns the call of a remote method of an object that the other end looks up.

    Args:
        target: Value that names the object.
        method: Function of a class, such as `TargetModel.save`.
        *args: Positional arguments of the method after `self`.
        **kwargs: Keyword arguments of the method.

    Raises:
        TypeError: The method is not remote, or an argument cannot travel.
    """
    return _call(method, args, kwargs, target)


def served(receiver: object, interface: type | None = None) -> dict[str, Called]:
    """Returns a function for each remote method of an object, by the name of its call.

    Args:
        receiver: Object whose methods are called; they must be thread-safe if several connections
            are served.
        interface: Class whose remote methods are served. Default: the object's.
    """
    methods = remote_methods(interface or type(receiver))
    return {name: _called(method, lambda _: receiver) for name, method in methods.items()}


def served_of(
    interface: type[_T], target: Any, receiver_of: Callable[[Any], _T]
) -> dict[str, Called]:
    """Returns a function for each remote method of several objects, by the name of its call.

    The functions answer the calls of `call_on`, whose target says which object is meant.

    Args:
        interface: Class whose remote methods are served.
        target: Annotation of the targets.
        receiver_of: Function that returns the object of a target, or raises a `TfhybridError`.
    """
    checked = _checker(target)

    def receiver(of: Any) -> object:
        return receiver_of(checked(of))

    return {name: _called(each, receiver) for name, each in remote_methods(interface).items()}


class Asks(Protocol):
    """Connection to another process that answers calls."""

    def ask(self, call: Call[_T]) -> _T:
        """Sends a call and returns its result.

        Args:
            call: The call.
        """


def client(interface: type[_T], connection: Asks, *, on: Any = None) -> _T:
    """Returns an object whose remote methods are those of an object in another process.

    Every method raises the errors of the real one, and those of `connection`.

    Args:
        interface: Class of the other process's object. Only its remote methods can be called.
        connection: Connection to that process; closed by its creator.
        on: Value that names the object, if the other process has several. Default: `None`.
    """
    return cast(_T, _Client(interface, connection, on))


class _Client:
    def __init__(self, interface: type, connection: Asks, on: Any) -> None:
        self._interface = interface
        self._connection = connection
        self._on = on

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Any = getattr(self._interface, name, None)
        if not is_remote(method):
            raise AttributeError(f"{self._interface.__name__} has no remote method '{name}'")

        def ask(*args: Any, **kwargs: Any) -> Any:
            target = inspect.Parameter.empty if self._on is None else self._on
            return self._connection.ask(_call(method, args, kwargs, target))

        return ask


class _Signature(NamedTuple):
    parameters: inspect.Signature
    names: tuple[str, ...]
    positional: int
    required: frozenset[str]
    arguments: type[pydantic.BaseModel]
    result: Callable[[Any], Any]

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the arguments by name; a third of the time that `bind` takes."""
        given: dict[str, Any] = {**dict(zip(self.names, args, strict=False)), **kwargs}
        fits = self.required <= given.keys() <= self.parameters.parameters.keys()
        if fits and len(args) <= self.positional and len(given) == len(args) + len(kwargs):
            return given
        return self.parameters.bind(*args, **kwargs).arguments  # says what is wrong


def _checker(annotation: Any) -> Callable[[Any], Any]:
    # In a tuple, because pydantic takes no configuration for a dataclass alone.
    adapter = pydantic.TypeAdapter(tuple[annotation], config=_CONFIG)
    return lambda value: adapter.validate_python((value,))[0]


@functools.cache
def _signature(method: Callable[..., Any]) -> _Signature:
    hints = typing.get_type_hints(method, include_extras=True)
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[1:]  # without self
    fields: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is each.empty else each.default)
        for each in parameters
    }
    model = pydantic.create_model(method.__qualname__, __config__=_CONFIG, **fields)
    return _Signature(
        signature.replace(parameters=parameters),
        tuple(fields),
        sum(each.kind != each.KEYWORD_ONLY for each in parameters),
        frozenset(each.name for each in parameters if each.default is each.empty),
        model,
        _checker(hints.get("return", Any)),
    )


def _call(
    method: Callable[..., _T], args: Any, kwargs: Any, target: Any = inspect.Parameter.empty
) -> Call[_T]:
    encoder = Encoder()
    given = _signature(method).named(args, kwargs)
    arguments = {name: encoder.encoded(value) for name, value in given.items()}
    if target is not inspect.Parameter.empty:
        arguments[_TARGET] = encoder.encoded(target)
    return Call(call_name(method), method, arguments, encoder.arrays)


def _called(method: Callable[..., Any], receiver_of: Callable[[Any], object]) -> Called:
    def called(arguments: Arguments, arrays: ReceivedArrays) -> Answer:
        try:
            plain = decoded(arguments, arrays)
            receiver = receiver_of(plain.pop(_TARGET, None))
            checked = _signature(method).arguments.model_validate(plain)
        except TfhybridError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _refused(method, error) from error
        encoder = Encoder()
        given = {name: getattr(checked, name) for name in _signature(method).names}
        result = encoder.encoded(getattr(receiver, method.__name__)(**given))
        return result, encoder.arrays

    return called


def _refused(method: Callable[..., Any], error: Exception) -> TfhybridError:
    """Returns the error of a value's own check, if there is one, or else what is wrong."""
    if isinstance(error, pydantic.ValidationError):
        for each in error.errors():
            own = each.get("ctx", {}).get("error")
            if isinstance(own, TfhybridError):
                return own
    return StoreError(f"The arguments of {method.__qualname__} are invalid: {_reason(error)}")


def _reason(error: Exception) -> str:
    if not isinstance(error, pydantic.ValidationError):
        return repr(error)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}. Received: {each['input']!r:.200}"
        for each in error.errors()
    )
