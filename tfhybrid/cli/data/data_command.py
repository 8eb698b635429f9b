"""`tfhybrid data`: files of samples."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tfhybrid import settings
from tfhybrid.cli.data.sample_format import FORMATS, AllSampleOptions, format_of
from tfhybrid.cli.terminal.console import progress, show, show_json
from tfhybrid.cli.terminal.help_page import CommandApp
from tfhybrid.cli.terminal.option_groups import grouped
from tfhybrid.cli.terminal.options import Json
from tfhybrid.errors import ConfigError

app = CommandApp()
_WITH_DENSE = ("csv", "parquet", "tfrecord")  # formats whose numbers --dense names


@app.callback()
def data() -> None:
    """Convert files of samples, and compute statistics of them."""


@app.command()
@grouped
def convert(
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Files to read.", exists=True)
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder for the new files, one NAME.parquet for each file."
        ),
    ],
    format_: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help=f"Format of FILES: {', '.join(FORMATS)}."),
    ],
    samples: AllSampleOptions,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
) -> None:
    """Convert files to Parquet, the format that is read fastest.

    Columns keep their names; strings become int64 keys. A file appears when it is complete. The
    options are the arguments of the formats in tfhybrid.data.

    $ tfhybrid data convert day.csv.gz --output days/ --format csv --features user
    $ tfhybrid data convert train.txt --output criteo/ --format criteo
    """
    format_of_sources = format_of(format_, **dataclasses.asdict(samples))
    targets = _targets(sources, output, replace)

    from tfhybrid.cli.data import conversion
    from tfhybrid.data.formats.agreed_types import AgreedTypes

    agreeing = format_of_sources.agreeing(AgreedTypes())
    rows, total = 0, sum(source.stat().st_size for source in sources)
    with _folder(output), progress("Converting", total) as advance:
        for source, target in targets.items():
            rows += conversion.convert(agreeing, source, target, advance)
    size = sum(target.stat().st_size for target in targets.values())
    show(f"{output}: {rows:,} samples in {len(targets)} file(s), {size / 1e6:,.1f} MB")


@app.command()
@grouped
def statistics(
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Files to read.", exists=True)
    ],
    format_: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help=f"Format of FILES: {', '.join(FORMATS)}."),
    ],
    samples: AllSampleOptions,
    parts: Annotated[
        int,
        typer.Option(min=2, max=1000, metavar="N", help="Parts into which quantiles cut a column."),
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show count, mean, variance and quantiles of columns of numbers.

    They are the constants of tfhybrid.features: mean and variance of Normalization, those of the
    logarithm behind Log, and quantiles as boundaries of Buckets. Files are read once. All are exact
    but the quantiles of columns with more than a million values. Missing numbers are left out.
    The ranks of horovodrun divide the files, and get what one would get.

    $ tfhybrid data statistics day.csv --format csv --dense price --json
    $ horovodrun -np 8 tfhybrid data statistics *.csv --format csv --dense price
    """
    from tfhybrid.cli.data import file_statistics

    options = dataclasses.asdict(samples)
    if format_ in _WITH_DENSE and options["dense"] is not None:
        options["features"] = options["features"] or []
        if options["missing_value"] is None:
            options["missing_value"] = math.nan
    result = file_statistics.of_files(sources, format_of(format_, **options), parts)
    if not result["columns"]:
        raise ConfigError("There are no columns of numbers: name them in --dense. Received: none")
    if settings.launcher_ranks()[0] == 0:
        (show_json if as_json else file_statistics.show_statistics)(result)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Creates a folder for the block; removes the new folders if the block leaves them empty."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in new:
            with contextlib.suppress(OSError):  # it has files
                folder.rmdir()


def _targets(sources: list[Path], output: Path, replace: bool) -> dict[Path, Path]:
    """Returns the file to write for each source.

    Raises:
        ConfigError: Two sources have the same target, or a target exists and `replace` is false.
    """
    from tfhybrid.data.formats.text import COMPRESSED

    targets: dict[Path, Path] = {}
    for source in sources:
        name = source.name
        for suffix in (*COMPRESSED, ".zlib"):
            name = name.removesuffix(suffix)
        # "day.tfrecord-00003-of-00010" is a part of "day"; its number is no suffix.
        stem = name if re.search(r"-of-\d+$", name) else Path(name).stem
        target = output / f"{stem}.parquet"
        if target in targets.values():
            raise ConfigError(f"Two files would be written to {target}. Received: {source}")
        if target.exists() and not replace:
            raise ConfigError(f"{target} exists; pass --replace to overwrite it.")
        targets[source] = target
    return targets
