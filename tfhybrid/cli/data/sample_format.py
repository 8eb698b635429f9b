"""Command-line options that describe files of samples, and the format built from them."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Annotated, Any

import typer

from tfhybrid.errors import ConfigError

# Class and module of each format. Modules are imported on use: importing pyarrow takes longer than
# everything else in a command.
FORMATS = {
    "csv": ("Csv", "csv"),
    "libfm": ("Libfm", "libfm"),
    "criteo": ("Criteo", "criteo"),
    "tfrecord": ("TFRecord", "tfrecord"),
    "parquet": ("Parquet", "parquet"),
}

Features = Annotated[str | None, typer.Option(help="Columns of keys: a,b,c.")]
Strings = Annotated[str | None, typer.Option(help="Columns of strings, to be hashed.")]
Lists = Annotated[str | None, typer.Option(help="Columns with any number of keys.")]
Dense = Annotated[str | None, typer.Option(help="Columns of numbers.")]
LabelColumns = Annotated[str | None, typer.Option("--label", help="Label column, or several: a,b.")]
LabelKind = Annotated[str | None, typer.Option(help="Kind of label: click | number | class.")]
Positive = Annotated[
    float | None, typer.Option(help="The label is 1 if the column is at least this.")
]
MissingKey = Annotated[int | None, typer.Option(help="Key for a missing value.")]
MissingValue = Annotated[float | None, typer.Option(help="Number for a missing value.")]
Columns = Annotated[str | None, typer.Option(help="All columns of CSV without a header: a,b,c.")]
Delimiter = Annotated[str | None, typer.Option(help="Separator of columns in CSV.")]
Separator = Annotated[str | None, typer.Option(help="Separator of a list's keys in CSV.")]
Bucketize = Annotated[
    bool | None, typer.Option("--bucketize", help="Read Criteo's numbers as features.")
]


def format_of(name: str, **options: Any) -> Any:
    """Returns the `tfhybrid.data.Format` that the options describe.

    Args:
        name: Name of the format, one of `FORMATS`.
        **options: Options of the format by name; `None` means not given. A list of features may be
            a list or a string `a,b,c`; `label` is such a string. `label_kind` is the kind of all
            labels.

    Raises:
        ConfigError: The format is unknown, does not have an option that is given, needs one
            that is not given, or the label kind is unknown.
    """
    label_kind = options.pop("label_kind", None)
    lists = ("features", "strings", "lists", "dense", "columns")
    options |= {
        each: options[each].split(",") for each in lists if isinstance(options.get(each), str)
    }
    options["label"] = _label(options.get("label"), label_kind)
    given = {option: value for option, value in options.items() if value is not None}
    if name not in FORMATS:
        raise ConfigError(f"--format must be one of {', '.join(FORMATS)}. Received: {name}")
    class_name, module = FORMATS[name]
    kind = getattr(import_module(f"tfhybrid.data.formats.{module}"), class_name)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := given.keys() - fields.keys():
        flags = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(unknown))
        raise ConfigError(f"Files of {name} have no such option. Received: {flags}")
    if "features" in fields and not given.keys() & {"features", "strings", "lists"}:
        named = [f"--{each}" for each in ("features", "strings", "lists") if each in fields]
        raise ConfigError(f"Files of {name} need {' or '.join(named)}. Received: none")
    return kind(**({"features": []} if "features" in fields else {}) | given)


def _label(names: str | None, kind: str | None) -> Any:
    """Returns the value of a format's `label=`, or `None` if no option sets it."""
    if names is None and kind is None:
        return None
    from tfhybrid.data.formats.label import Label

    columns = (names or "label").split(",")
    labels = columns if kind is None else [Label(column, kind) for column in columns]
    return labels if len(labels) > 1 else labels[0]
