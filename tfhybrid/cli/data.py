"""`tfhybrid data`: files of samples."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tfhybrid.cli.console import progress, show
from tfhybrid.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Files of samples.")

# Class and module of each: pyarrow takes longer to import than all else that a command needs.
_FORMATS = {
    "csv": ("Csv", "csv"),
    "libfm": ("Libfm", "libfm"),
    "criteo": ("Criteo", "criteo"),
    "tfrecord": ("TFRecord", "tfrecord"),
    "parquet": ("Parquet", "parquet"),
}


@app.command()
def convert(
    sources: Annotated[list[Path], typer.Argument(help="Files to read.", exists=True)],
    output: Annotated[Path, typer.Option(help="Folder for a NAME.parquet of each file.")],
    format_: Annotated[str, typer.Option("--format", help=" | ".join(_FORMATS))],
    features: Annotated[str | None, typer.Option(help="Columns of keys: a,b,c.")] = None,
    strings: Annotated[str | None, typer.Option(help="Columns of strings, to be hashed.")] = None,
    lists: Annotated[str | None, typer.Option(help="Columns of any number of keys.")] = None,
    dense: Annotated[str | None, typer.Option(help="Columns of numbers.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label, or several: a,b.")] = None,
    label_kind: Annotated[
        str | None, typer.Option(help="What labels are: click | number | class.")
    ] = None,
    positive: Annotated[
        float | None, typer.Option(help="The label is 1 from this value on.")
    ] = None,
    missing_key: Annotated[int | None, typer.Option(help="Key of what is missing.")] = None,
    missing_value: Annotated[float | None, typer.Option(help="Number of what is missing.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="All columns, of CSV without a header: a,b,c.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between columns of CSV.")] = None,
    separator: Annotated[str | None, typer.Option(help="Between keys of a list in CSV.")] = None,
    bucketize: Annotated[
        bool | None, typer.Option("--bucketize", help="Criteo's numbers as features.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files there.")] = False,
) -> None:
    """Write files as Parquet, which is read many times faster than text.

    Options are those of the formats of `tfhybrid.data`; keys of strings are hashed now.

    tfhybrid data convert day_*.csv.gz --output days/ --format csv --features user,item

    tfhybrid data convert train.txt --output criteo/ --format criteo
    """
    given = {
        "features": features and features.split(","),
        "strings": strings and strings.split(","),
        "lists": lists and lists.split(","),
        "dense": dense and dense.split(","),
        "label": _label(label, label_kind),
        "positive": positive,
        "missing_key": missing_key,
        "missing_value": missing_value,
        "columns": columns and columns.split(","),
        "delimiter": delimiter,
        "separator": separator,
        "bucketize": bucketize,
    }
    format_of_sources = _format(format_, {n: v for n, v in given.items() if v is not None})
    targets = _targets(sources, output, replace)

    from tfhybrid.cli import conversion

    output.mkdir(parents=True, exist_ok=True)
    rows = 0
    with progress("Converting", sum(source.stat().st_size for source in sources)) as advance:
        for source, target in targets.items():
            rows += conversion.convert(format_of_sources, source, target, advance)
    size = sum(target.stat().st_size for target in targets.values())
    show(f"{output}: {rows:,} samples in {len(targets)} file(s), {size / 1e6:,.1f} MB")


def _label(names: str | None, kind: str | None) -> Any:
    """Returns a format's `label=`, or `None` where nothing is said of it."""
    if names is None and kind is None:
        return None
    from tfhybrid.data.formats.label import Label

    columns = (names or "label").split(",")
    labels = columns if kind is None else [Label(column, kind) for column in columns]
    return labels if len(labels) > 1 else labels[0]


def _format(name: str, options: dict[str, Any]) -> Any:
    if name not in _FORMATS:
        raise ConfigError(f"--format is one of {', '.join(_FORMATS)}. Received: {name}")
    class_name, module = _FORMATS[name]
    kind = getattr(import_module(f"tfhybrid.data.formats.{module}"), class_name)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := options.keys() - fields.keys():
        flags = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(unknown))
        raise ConfigError(f"Files of {name} have no such option. Received: {flags}")
    if "features" in fields and not options.keys() & {"features", "strings", "lists"}:
        named = [f"--{each}" for each in ("features", "strings", "lists") if each in fields]
        raise ConfigError(f"Files of {name} need {' or '.join(named)}. Received: none")
    return kind(**({"features": []} if "features" in fields else {}) | options)


def _targets(sources: list[Path], output: Path, replace: bool) -> dict[Path, Path]:
    """Returns the file to write for each source."""
    targets: dict[Path, Path] = {}
    for source in sources:
        name = source.name
        for suffix in (".gz", ".bz2", ".zlib"):
            name = name.removesuffix(suffix)
        target = output / f"{Path(name).stem}.parquet"
        if target in targets.values():
            raise ConfigError(f"Two files would be written to {target}. Received: {source}")
        if target.exists() and not replace:
            raise ConfigError(f"{target} is there already; --replace replaces it.")
        targets[source] = target
    return targets
