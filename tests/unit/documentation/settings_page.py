"""The tables of docs/train.md, made of the settings.

python -m tests.unit.documentation.settings_page    # writes them
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from tests.unit.documentation.marked_part import with_part
from tfhybrid.cli.train.settings_section import Section
from tfhybrid.cli.train.train_settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "train.md"


def tables() -> str:
    """Returns a heading and a table for each section of the file."""
    found = []
    for place, section in sections(Settings):
        title = f"`{place}`" if place else "The file"
        lines = [f"### {title}", "", inspect.getdoc(section) or "", ""]
        lines += ["| Setting | Default | |", "| --- | --- | --- |"]
        for name, field in section.model_fields.items():
            lines.append(f"| `{name}` | {_default(field)} | {field.description} |")
        found.append("\n".join(lines) + "\n")
    return "\n".join(found)


def sections(section: type[Section], place: str = "") -> list[tuple[str, type[Section]]]:
    """Returns the sections of the file by their place, such as `tables.FEATURE`."""
    found = [(place, section)]
    for name, field in section.model_fields.items():
        kinds = _kinds(field.annotation)
        for kind in kinds:
            below = f"{place}.{name}".removeprefix(".")
            below += ".FEATURE" * (below in ("tables", "features"))
            if len(kinds) > 1:
                below += f" ({kind.__name__.removesuffix('Settings').lower()})"
            if kind not in [each for _, each in found]:
                found += sections(kind, below)
    seen: dict[type[Section], str] = {}
    return [(at, each) for at, each in found if seen.setdefault(each, at) == at]


def _kinds(annotation: Any) -> list[type[Section]]:
    """Returns the sections among the types of a field."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union, dict, list):
        return [kind for each in typing.get_args(annotation) for kind in _kinds(each)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, Section) else []


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    if field.default_factory is not None or field.default is None:
        return ""
    return f"`{json.dumps(field.default)}`"


if __name__ == "__main__":
    PAGE.write_text(with_part(PAGE.read_text(), "settings", tables()))
