"""Output of the commands: results on standard output, errors and progress on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_output = Console(highlight=False, markup=False)
_errors = Console(stderr=True, highlight=False, markup=False)


def plain(text: str, style: str = "") -> Text:
    r"""Returns text from a file for display, with visible control characters and literal brackets.

    Args:
        text: Text to show.
        style: Style of rich, such as "bold". Default: none.

    Example:

    >>> plain("item\x1b[2J").plain
    'item\\x1b[2J'
    """
    return Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in text), style)


def show(line: str | Text) -> None:
    """Writes a line on standard output, without wrapping.

    Args:
        line: Line without a line break.
    """
    _output.print(line, soft_wrap=True)


def show_beside(mark: Text, text: Text) -> None:
    """Writes a text beside a mark on standard output. On a terminal, long texts are folded there.

    Args:
        mark: Beginning of the first line. The other lines begin with as many blanks.
        text: Text without a line break.
    """
    width = max(_output.width - len(mark), 1)
    # Anywhere else it stays one line, for programs that search it.
    for line in text.wrap(_output, width) if _output.is_terminal else [text]:
        line.rstrip()
        show(Text.assemble(mark, line))
        mark = Text(" " * len(mark))


def drawn_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Sequence[str],
    title: str = "",
    caption: str = "",
) -> Table:
    """Returns a table for a terminal.

    Args:
        columns: Titles of the columns.
        rows: Texts of the cells, by row.
        text: Titles of the columns with texts, on the left; the others hold numbers, on the right.
        title: Line above the table. Default: none.
        caption: Lines below the table. Default: none.
    """
    from rich.table import Table

    table = Table(title_justify="left", caption_justify="left")
    table.title = plain(title) if title else None
    table.caption = Text("\n").join(map(plain, caption.splitlines())) if caption else None
    for column in columns:
        table.add_column(column, justify="left" if column in text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def show_table(columns: Sequence[str], rows: list[list[str]], *, text: Sequence[str]) -> None:
    """Writes a table to standard output.

    Args:
        columns: Titles of the columns.
        rows: Texts of the cells, by row.
        text: Titles of the columns with texts, on the left; the others hold numbers, on the right.
    """
    _output.print(drawn_table(columns, rows, text=text))


def show_json(value: Any) -> None:
    """Writes a value as JSON on standard output.

    Raises:
        ValueError: The value contains NaN or infinities; replace them by `None`.
    """
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def show_error(message: str) -> None:
    """Writes an error on standard error.

    Args:
        message: Text of the error. Its lines stay lines, as those about several settings of a file;
            the second and later ones are indented.
    """
    mark = "Error: "
    for line in message.split("\n"):
        _errors.print(Text.assemble((mark, "bold red"), plain(line)), soft_wrap=True)
        mark = " " * len(mark)


@contextmanager
def live() -> Iterator[Callable[[RenderableType], None]]:
    """Shows a changing table: redrawn in place on a terminal, otherwise printed again each time.

    Yields:
        A function to call with the current table.
    """
    if not _output.is_terminal:
        yield _output.print
        return
    from rich.live import Live

    with Live(console=_output, auto_refresh=False) as screen:
        yield lambda table: screen.update(table, refresh=True)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar during the block, if standard error is a terminal.

    Args:
        what: Label of the bar, such as "Verifying".
        total: Total number of bytes.

    Yields:
        A function to call with the number of bytes done since its last call.
    """
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=_errors, transient=True, disable=not _errors.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows what the command waits for during the block, if standard error is a terminal.

    Args:
        what: Text beside the moving sign, such as "Checking TensorFlow".
    """
    if not _errors.is_terminal:
        yield
        return
    with _errors.status(plain(f"{what} ...")):
        yield
