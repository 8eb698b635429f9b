"""`tfhybrid plan`: prediction of whether a job's tables fit, and of what a step exchanges."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from tfhybrid.cli.data.sample_format import FORMATS, SampleOptions, format_of
from tfhybrid.cli.terminal.console import plain, show, show_json, show_table
from tfhybrid.cli.terminal.option_groups import grouped
from tfhybrid.cli.terminal.options import Json
from tfhybrid.errors import ConfigError

if TYPE_CHECKING:
    from tfhybrid.store.table_memory import TableBytes, TableShape

# Optimizer state per row, in vectors of `dim` floats; RowAdagrad has a single float.
_STATES = {
    **{"sgd": 0, "momentum": 1, "adagrad": 1, "adam": 2, "adamw": 2, "amsgrad": 3},
    **{"rmsprop": 1, "ftrl": 2, "row_adagrad": 0},
}
# Options in the groups of the help.
_table, _host, _of_step, _file = (
    functools.partial(typer.Option, rich_help_panel=group)
    for group in ("Tables", "Hosts", "Steps", "Files instead of --rows")
)
_PARTS = ("model", "tables", "link")  # parts of a step; they do not overlap
_MEASURED_ROWS = 5_000_000  # per table: more rows take long to write, and change a step little
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def _names(group: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(group)]


@dataclasses.dataclass(frozen=True)
class _Tables:
    """Options of the tables, which are equal."""

    rows: Annotated[
        str | None, _table(metavar="N", help="Final number of rows of a table, as in 50M.")
    ] = None
    dim: Annotated[int, _table(min=1, max=65536, metavar="N", help="Length of an embedding.")] = 16
    optimizer: Annotated[
        str, _table(metavar="NAME", help=f"Optimizer of the tables: {', '.join(_STATES)}.")
    ] = "adam"
    tables: Annotated[int, _table(min=1, metavar="N", help="Number of equal tables.")] = 1
    history: Annotated[
        bool, _table("--history", help="Add the memory of admission or eviction.")
    ] = False
    sharded: Annotated[
        bool,
        _table(
            "--sharded", help="Shard the tables (placement=Sharded()): each row is on one host."
        ),
    ] = False
    cache: Annotated[
        str | None,
        _table(metavar="BYTES", help="Cache of tables in files, FileTier(cache_bytes=), as in 2G."),
    ] = None
    pass_batches: Annotated[
        int,
        _table(
            min=0, metavar="N", help="Batches of a pass, data.announce(batches=); needs --sharded."
        ),
    ] = 0


@dataclasses.dataclass(frozen=True)
class _Hosts:
    """Options of the hosts, which are equal."""

    hosts: Annotated[int, _host(min=1, metavar="N", help="Number of hosts.")] = 1
    ranks: Annotated[int, _host(min=1, metavar="N", help="Ranks on each host.")] = 1
    link: Annotated[
        float,
        _host(min=0.001, metavar="GBIT", help="Speed of the network link of a host, in Gbit/s."),
    ] = 10.0
    cores: Annotated[
        float | None,
        _host(min=0.1, metavar="N", show_default="as many as here", help="Cores of each host."),
    ] = None


@dataclasses.dataclass(frozen=True)
class _Step:
    """Options of a step."""

    batch: Annotated[int, _of_step(min=1, metavar="N", help="Samples in the batch of a rank.")] = (
        4096
    )
    keys: Annotated[int, _of_step(min=1, metavar="N", help="Keys of a sample in each table.")] = 1
    zipf: Annotated[
        float,
        _of_step(
            min=0,
            metavar="X",
            help="Skew of the keys: the k-th key is as frequent as k**-X; 0 if all are equal.",
        ),
    ] = 1.0
    bfloat16: Annotated[
        bool, _of_step("--bfloat16", help='Send gradients as wire_dtype="bfloat16".')
    ] = False
    model_ms: Annotated[
        float,
        _of_step(
            "--model-ms",
            min=0,
            metavar="MS",
            help="Time of a step of the model without tables, in milliseconds.",
        ),
    ] = 0.0
    measure: Annotated[
        bool,
        _of_step(
            "--measure", help="Run the ranks of one host here without a model, and measure a step."
        ),
    ] = False


@dataclasses.dataclass(frozen=True)
class _Files:
    """Files whose ids to count."""

    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="More files of --data.")
    ] = None
    data: Annotated[
        list[str] | None,
        _file(metavar="FILES", help="Files or patterns whose ids to count, instead of --rows."),
    ] = None
    format_: Annotated[
        str, _file("--format", metavar="NAME", help=f"Format of --data: {', '.join(FORMATS)}.")
    ] = "parquet"
    shared: Annotated[
        list[str] | None,
        _file(
            metavar="TABLE=A,B",
            help="Table that several features of --data share, as in items=item,liked; repeatable.",
        ),
    ] = None


# Names of the options that only go with --rows, and of those that only go with --data.
_OF_ROWS = {"tables", "pass_batches", "ranks", "link", "cores", *_names(_Step)}
_OF_DATA = {*_names(_Files), *_names(SampleOptions)} - {"data"}


@grouped
def plan(
    context: typer.Context,
    table: _Tables,
    host: _Hosts,
    step: _Step,
    files: _Files,
    samples: SampleOptions,
    as_json: Json = False,
) -> None:
    """Predict whether tables fit in memory, and what a step costs.

    With --rows: the memory and disk space of tables, from the layout of the store, and the time of
    a step, from a few measured constants. With --data: the number of ids of each feature of files,
    and the expected_rows to set. The exit status is 1 if the tables do not fit in this host's
    shared memory.

    $ tfhybrid plan --rows 50M --dim 16 --tables 2 --hosts 2 --ranks 8
    $ tfhybrid plan --data day_*.parquet --features user,item --dim 16
    """
    from tfhybrid.core import native
    from tfhybrid.settings import shm_directory
    from tfhybrid.store.table_memory import TableShape, bytes_of

    if table.optimizer not in _STATES:
        raise ConfigError(f"--optimizer must be one of {[*_STATES]}. Received: {table.optimizer!r}")
    _check_source(context, table.rows, files.data)
    floats = 1 if table.optimizer == "row_adagrad" else _STATES[table.optimizer] * table.dim
    free = native.available_bytes(shm_directory())
    cache_bytes = parse_count(table.cache, "--cache") if table.cache is not None else 0
    if table.pass_batches and not (table.sharded and host.hosts > 1):
        raise ConfigError(
            "A pass fetches rows of other hosts: --pass-batches needs --sharded and several "
            f"--hosts. Received: --pass-batches {table.pass_batches}, --hosts {host.hosts}, "
            f"sharded={table.sharded}"
        )
    shards = host.hosts if table.sharded else 1

    def of_host(rows: int) -> TableBytes:
        """Returns the memory of a table on one host, and the size of its checkpoint."""
        shape = TableShape(math.ceil(rows / shards), table.dim, floats, table.history, cache_bytes)
        size = bytes_of(shape)
        return dataclasses.replace(size, checkpoint=size.checkpoint * shards)

    if files.data is not None:
        _show_plan(_of_files(files, samples, free, of_host), _show_data, as_json)
        return
    count = parse_count(table.rows or "", "--rows")
    shape = TableShape(count, table.dim, floats, table.history, cache_bytes)
    predicted = _of_rows(table, host, step, shape, free, of_host(count))
    if step.measure:
        from tfhybrid.planner.step_seconds import MeasuredWork
        from tfhybrid.planner.step_seconds import measure as step_seconds

        rows_of_host = math.ceil(count / shards)
        fitting = int(rows_of_host * free / (2 * predicted["peak"]))
        measured = max(1, min(rows_of_host, _MEASURED_ROWS, fitting))
        work = MeasuredWork(
            *(table.tables, measured, table.dim, table.optimizer, step.batch * step.keys),
            *(step.zipf, step.bfloat16, table.history),
        )
        predicted["of_a_step"]["measured_rows"] = measured
        predicted["of_a_step"]["measured_seconds"] = step_seconds(work, host.ranks)
    _show_plan(predicted, _show, as_json)


def _of_files(
    files: _Files, samples: SampleOptions, free: int, of_host: Callable[[int], TableBytes]
) -> dict[str, Any]:
    """Returns the ids of the features of files, and the memory of their tables."""
    from tfhybrid.cli.data import data_plan
    from tfhybrid.data.file_names import files_of

    file_format = format_of(files.format_, **dataclasses.asdict(samples))
    paths = files_of([*(files.data or []), *(files.more or [])])
    shared = data_plan.shared_of(files.shared or [])
    counted = data_plan.of_files(paths, file_format, shared, of_host)
    return counted | _memory(counted["tables"], free)


def _of_rows(
    table: _Tables,
    host: _Hosts,
    step: _Step,
    shape: TableShape,
    free: int,
    of_table: TableBytes,
) -> dict[str, Any]:
    """Returns the memory of tables of that shape, and the cost of a step."""
    from tfhybrid.planner.step_costs import Costs, PlannedStep, seconds_of
    from tfhybrid.planner.step_traffic import fast_tier_of

    tables, keys = table.tables, step.batch * step.keys
    planned = PlannedStep(
        *(tables, shape.rows, shape.dim, shape.state_floats),
        *(keys, step.zipf, host.hosts, host.ranks),
        cores=host.cores or len(os.sched_getaffinity(0)),
        link=host.link,
        gradient_bytes=2 if step.bfloat16 else 4,
        sharded=table.sharded,
    )
    traffic = planned.traffic()
    takes = seconds_of(planned, Costs.shipped())
    parts = {"model": step.model_ms / 1e3, "tables": takes.tables, "link": takes.link}
    tier = fast_tier_of(
        planned.of_table, batches=table.pass_batches, in_files=bool(shape.cache_bytes)
    )
    peak = (tables - 1) * of_table.total + of_table.peak + tables * tier.bytes
    return {
        "tables": tables,
        "of_a_table": dataclasses.asdict(of_table) | {"total": of_table.total},
        "shared_memory": tables * of_table.total,
        "fast_tier": {
            "batches": table.pass_batches,
            "rows": tables * tier.rows,
            "bytes": tables * tier.bytes,
        },
        "peak": peak,
        "files": tables * of_table.file,
        "plain_horovod": host.ranks * tables * (of_table.embeddings + of_table.state),
        "checkpoint": tables * of_table.checkpoint,
        "of_a_step": {
            **dataclasses.asdict(traffic),
            "host_bytes": tables * traffic.host_bytes,
            **{f"{part}_seconds": seconds for part, seconds in parts.items()},
            "step_seconds": sum(parts.values()),
            "limit": max(parts, key=parts.__getitem__),
        },
        "free_here": free,
        "fits_here": peak <= free,
        "sharded_by_auto": _sharded_by_auto(shape, tables, host.hosts, free),
    }


def parse_count(text: str, option: str) -> int:
    """Parses a number of rows or bytes, such as 50M.

    Args:
        text: Number with an optional suffix K, M, G or B, in powers of 1000.
        option: Name of the option, for the error.

    Returns:
        The number, rounded to a whole one.

    Raises:
        ConfigError: The text is not such a number below 2^40.

    Example:

    >>> parse_count("1.5M", "--rows")
    1500000
    """
    lower = text.strip().lower().replace("_", "").replace(",", "")
    unit = lower[-1:] if lower[-1:] in ("k", "m", "g", "b") else ""
    try:
        count = float(lower.removesuffix(unit)) * _UNITS[unit]
        if not 0 <= count < 2**40:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{option} must be a number such as 50M, below 2^40. Received: {text!r}"
        ) from None
    return round(count)


def _sharded_by_auto(shape: TableShape, tables: int, hosts: int, free: int) -> int:
    """Counts the tables that `placement="auto"` would shard on hosts like this one."""
    from tfhybrid.config.placement import Sharded
    from tfhybrid.store.auto_placement import USABLE, choose

    room, sharded = int(USABLE * free), 0
    for _ in range(tables):
        choice = choose(shape, hosts, room)
        room -= choice.bytes
        sharded += isinstance(choice.placement, Sharded)
    return sharded


def _check_source(context: typer.Context, rows: str | None, data: list[str] | None) -> None:
    """Raises `ConfigError` unless one of --rows and --data is given, and only its own options."""
    if (rows is None) == (data is None):
        received = "none of them" if data is None else "both"
        raise ConfigError(f"plan needs either --rows or --data. Received: {received}")
    source, foreign = ("--rows", _OF_DATA) if data is None else ("--data", _OF_ROWS)
    given = [
        name
        for name in context.params
        if name in foreign and str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    ]
    if given:
        flags = ["FILES" if each == "more" else f"--{each.strip('_')}" for each in sorted(given)]
        raise ConfigError(
            f"These options do not go with {source}. Received: {', '.join(flags)}".replace("_", "-")
        )


def _memory(tables: dict[str, Any], free: int) -> dict[str, Any]:
    """Returns the bytes of all tables. The peak assumes that only one table grows at a time."""
    total = sum(table["bytes"] for table in tables.values())
    growing = max((table["peak_bytes"] - table["bytes"] for table in tables.values()), default=0)
    checkpoint = sum(table["checkpoint_bytes"] for table in tables.values())
    return {
        **{"shared_memory": total, "peak": total + growing, "checkpoint": checkpoint},
        **{"free_here": free, "fits_here": total + growing <= free},
    }


def _show_plan(
    predicted: dict[str, Any], writer: Callable[[dict[str, Any]], None], as_json: bool
) -> None:
    """Writes the plan. Raises `typer.Exit` with status 1 if the tables do not fit here."""
    (show_json if as_json else writer)(predicted)
    if not predicted["fits_here"]:
        raise typer.Exit(1)


def _show_memory(predicted: dict[str, Any]) -> None:
    fits = "fits here" if predicted["fits_here"] else "DOES NOT FIT HERE"
    show(f"shared memory of each host  {decimal(predicted['shared_memory'])}")
    tier = predicted.get("fast_tier", {})
    if tier.get("batches"):
        show(
            plain(
                f"fast tier of each host      {decimal(tier['bytes'])}: two passes of "
                f"{tier['batches']} batches of each rank, {tier['rows']:,} rows"
            )
        )
    if predicted.get("files"):
        show(f"files of each host          {decimal(predicted['files'])}")
    peak, free = decimal(predicted["peak"]), decimal(predicted["free_here"])
    show(plain(f"at most, while they grow    {peak}; {free} are free: {fits}"))
    if "plain_horovod" in predicted:
        show(f"a copy per rank would take  {decimal(predicted['plain_horovod'])}")
    if predicted.get("sharded_by_auto"):
        show(plain(f"placement='auto' shards     {predicted['sharded_by_auto']} of the tables"))
    show(f"a checkpoint                {decimal(predicted['checkpoint'])}")


def _show_data(predicted: dict[str, Any]) -> None:
    from tfhybrid.cli.data import data_plan

    data_plan.show_counts(predicted)
    _show_memory(predicted | {"files": 0})  # here the number of the files of samples


def _show(predicted: dict[str, Any]) -> None:
    of_table, step = predicted["of_a_table"], predicted["of_a_step"]
    parts = ["embeddings", "state", "history", "index"]
    show_table(
        ["", *parts, "in all"],
        [["a table", *(decimal(of_table[part]) for part in parts), decimal(of_table["total"])]],
        text=[""],
    )
    _show_memory(predicted)
    keys = f"{step['rank_keys']:,.0f} of a rank, {step['host_keys']:,.0f} of a host, "
    show(f"different keys of a step    {keys}{step['all_keys']:,.0f} of all, in each table")
    received = f"{decimal(round(step['host_bytes']))}, {1e3 * step['link_seconds']:.2f} ms"
    show(f"come to a host in a step    {received} on its link")
    times = ", ".join(f"{part} {1e3 * step[f'{part}_seconds']:.2f}" for part in _PARTS)
    limit = f"{1e3 * step['step_seconds']:.2f} ms ({times}); the limit is the {step['limit']}"
    show(f"a step, by the cost model   {limit}")
    if "measured_seconds" in step:
        seconds = (
            f"{1e3 * step['measured_seconds']:.2f} ms with {step['measured_rows']:,} rows of each"
        )
        show(f"tables in a step, measured  {seconds}, beside which a model computes")
