"""`tfhybrid data`: files of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.data.sample_format import (
    FORMATS,
    Bucketize,
    Columns,
    Delimiter,
    Dense,
    Features,
    LabelColumns,
    LabelKind,
    Lists,
    MissingKey,
    MissingValue,
    Positive,
    Separator,
    Strings,
    format_of,
)
from tfhybrid.cli.terminal.console import progress, show
from tfhybrid.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Files of samples.")


@app.command()
def convert(
    sources: Annotated[list[Path], typer.Argument(help="Files to read.", exists=True)],
    output: Annotated[Path, typer.Option(help="Folder for a NAME.parquet of each file.")],
    format_: Annotated[str, typer.Option("--format", help=" | ".join(FORMATS))],
    features: Features = None,
    strings: Strings = None,
    lists: Lists = None,
    dense: Dense = None,
    label: LabelColumns = None,
    label_kind: LabelKind = None,
    positive: Positive = None,
    missing_key: MissingKey = None,
    missing_value: MissingValue = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    separator: Separator = None,
    bucketize: Bucketize = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
) -> None:
    """Write files as Parquet, which is read many times faster than text.

    The options are those of the formats of `tfhybrid.data`; strings are hashed to keys during
    conversion.

    tfhybrid data convert day_*.csv.gz --output days/ --format csv --features user,item

    tfhybrid data convert train.txt --output criteo/ --format criteo
    """
    format_of_sources = format_of(
        format_,
        features=features,
        strings=strings,
        lists=lists,
        dense=dense,
        label=label,
        label_kind=label_kind,
        positive=positive,
        missing_key=missing_key,
        missing_value=missing_value,
        columns=columns,
        delimiter=delimiter,
        separator=separator,
        bucketize=bucketize,
    )
    targets = _targets(sources, output, replace)

    from tfhybrid.cli.data import conversion

    output.mkdir(parents=True, exist_ok=True)
    rows = 0
    with progress("Converting", sum(source.stat().st_size for source in sources)) as advance:
        for source, target in targets.items():
            rows += conversion.convert(format_of_sources, source, target, advance)
    size = sum(target.stat().st_size for target in targets.values())
    show(f"{output}: {rows:,} samples in {len(targets)} file(s), {size / 1e6:,.1f} MB")


def _targets(sources: list[Path], output: Path, replace: bool) -> dict[Path, Path]:
    """Returns the file to write for each source.

    Raises:
        ConfigError: Two sources have the same target, or a target exists and `replace` is false.
    """
    targets: dict[Path, Path] = {}
    for source in sources:
        name = source.name
        for suffix in (".gz", ".bz2", ".zlib"):
            name = name.removesuffix(suffix)
        target = output / f"{Path(name).stem}.parquet"
        if target in targets.values():
            raise ConfigError(f"Two files would be written to {target}. Received: {source}")
        if target.exists() and not replace:
            raise ConfigError(f"{target} exists; pass --replace to overwrite it.")
        targets[source] = target
    return targets
