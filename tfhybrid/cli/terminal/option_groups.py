"""Options of a command in groups: dataclasses whose fields are options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a command for typer with the options of the groups that a function takes.

    Args:
        command: Function with parameters for typer. A parameter that is a dataclass stands for its
            fields, which are `Annotated` options and arguments.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)
    }

    def run(**options: Any) -> Any:
        for name, kind in groups.items():
            fields = {each.name: options.pop(each.name) for each in dataclasses.fields(kind)}
            options[name] = kind(**fields)
        return command(**options)

    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        for each in _parameters(groups[name]) if name in groups else [own]:
            hint = hints[name] if each is own else each.annotation
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(each.replace(kind=keyword, annotation=hint))
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _parameters(group: Any) -> list[inspect.Parameter]:
    """Returns the parameters of a dataclass, with their types instead of the names of these."""
    hints = get_type_hints(group, include_extras=True)
    parameters = inspect.signature(group).parameters.items()
    return [parameter.replace(annotation=hints[name]) for name, parameter in parameters]
