"""Command-line options that describe files of samples, and the format built from them."""

from __future__ import annotations

import dataclasses
import functools
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

# Options in the two groups of the help.
_column = functools.partial(typer.Option, rich_help_panel="Columns of the files")
_layout = functools.partial(typer.Option, rich_help_panel="Layout of the files")


@dataclasses.dataclass(frozen=True)
class SampleOptions:
    """Options that describe the columns of files of samples, as arguments of their format."""

    features: Annotated[
        str | None, _column(metavar="A,B", help="Columns of keys, whole numbers.")
    ] = None
    strings: Annotated[
        str | None, _column(metavar="A,B", help="Columns of strings, hashed to keys.")
    ] = None
    lists: Annotated[
        str | None,
        _column(
            metavar="A,B",
            help="Columns of lists of keys; in CSV, name those of strings in --strings too.",
        ),
    ] = None
    times: Annotated[
        str | None,
        _column(metavar="A,B", help="Columns of times, read as microseconds since 1970."),
    ] = None
    label: Annotated[
        str | None, _column(metavar="A,B", show_default="label", help="Label column, or several.")
    ] = None
    label_kind: Annotated[
        str | None,
        _column(
            metavar="KIND",
            show_default="click",
            help="Kind of the labels: click (0 or 1), number, or class (whole numbers from 0).",
        ),
    ] = None
    positive: Annotated[
        float | None,
        _column(
            metavar="X",
            help="Threshold of clicks: the label is 1 if the column is at least X, else 0.",
        ),
    ] = None
    missing_key: Annotated[
        int | None, _layout(metavar="KEY", show_default="an error", help="Key for a missing value.")
    ] = None
    columns: Annotated[
        str | None,
        _layout(
            metavar="A,B",
            show_default="the first line",
            help="All columns of CSV files without a header.",
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        _layout(metavar="CHAR", show_default="a comma", help="Separator of the columns of CSV."),
    ] = None
    separator: Annotated[
        str | None,
        _layout(metavar="CHAR", show_default="|", help="Separator of the keys of a list in CSV."),
    ] = None


@dataclasses.dataclass(frozen=True)
class AllSampleOptions(SampleOptions):
    """Options that describe all columns of files of samples, also those that are no keys."""

    dense: Annotated[str | None, _column(metavar="A,B", help="Columns of numbers.")] = None
    bucketize: Annotated[
        bool | None, _column("--bucketize", help="Read Criteo's numbers as features.")
    ] = None
    missing_value: Annotated[
        float | None,
        _layout(metavar="X", show_default="an error", help="Number for a missing value."),
    ] = None
    empty: Annotated[
        str | None,
        _layout(
            metavar="MEANING",
            show_default="string",
            help="Meaning of an empty field in CSV columns of strings: string or missing.",
        ),
    ] = None


def format_of(name: str, **options: Any) -> Any:
    """Returns the `tfhybrid.data.Format` that the options describe.

    Args:
        name: Name of the format, one of `FORMATS`.
        **options: Options of the format by name; `None` means not given. A list of features may be
            a list or a string `a,b,c`; `label` and `times` are such strings. `label_kind` is the
            kind of all labels.

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
    if "times" in given and "features" in fields:
        given["features"] = [*given.get("features", []), *_times(given.pop("times"))]
    if unknown := given.keys() - fields.keys():
        flags = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(unknown))
        advice = ""
        if name == "parquet" and unknown & {"lists", "strings"}:
            advice = ", because they tell the types of their columns: name these in --features"
        raise ConfigError(f"Files of {name} have no such option{advice}. Received: {flags}")
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


def _times(names: str) -> list[Any]:
    from tfhybrid.values import Column

    return [Column(name, "time") for name in names.split(",")]
