"""Help pages of the commands: options in groups, plain text unless written to a terminal."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typing_extensions import override

if TYPE_CHECKING:
    from rich.text import Text

_WIDTH = 100  # maximum length of a line; longer ones are hard to read
_NAMES_WIDTH = 30  # longer names have their text below
_GAP = "  "
_REQUIRED, _OPTIONS = "Required options", "Options"
# Click's remarks on a parameter, as people write them. That 0 hosts are too few goes without words.
_REMARKS = {
    r"(\S+)<=x<=(\S+?)(?=[];])": r"\1 to \2",
    r"; x>=\S+?(?=])|x>=\S+?; |; required(?=])": "",
    r" *\[(required|x>=\S+)\]$": "",
    r"\[default: \(([^()]*)\)": r"[default: \1",
    r" *\[default: no-[^]]*\]$": "",  # a flag that is not given
}
_UNBROKEN = "\u00a0"  # stands for a blank at which no line ends

_Row = tuple[str, str]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class CommandApp(typer.Typer):
    """Application or group of commands whose help is written by this module.

    Args:
        **settings: Arguments of `typer.Typer`.
    """

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "cls": HelpfulGroup,
            "no_args_is_help": True,
            "rich_markup_mode": None,
        }
        super().__init__(**defaults | {"pretty_exceptions_enable": False} | settings)

    @override
    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        decorator: Callable[[_Function], _Function]
        decorator = super().command(name, **{"cls": HelpfulCommand} | settings)
        return decorator


class HelpfulCommand(TyperCommand):
    """Command with a help page of this module."""

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_page(self, ctx))


class HelpfulGroup(TyperGroup):
    """Group of commands with a help page of this module, on standard output if nothing is given."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_page(self, ctx))


def visible_commands(group: Any, ctx: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the commands that a user can run, in the order of the help.

    Args:
        group: Group of commands. The commands of groups inside it are included.
        ctx: Context of the group, as click passes it.

    Yields:
        The words of a command after the name of the group, and the command.
    """
    for name in group.list_commands(ctx):
        command = group.commands[name]
        if command.hidden:
            continue
        if isinstance(command, TyperGroup):
            for words, inner in visible_commands(command, ctx):
                yield (name, *words), inner
        else:
            yield (name,), command


def summary(command: Any) -> str:
    """Returns the first sentence of a command's help."""
    first = " ".join(_paragraphs(command)[0].split())
    return first.split(". ")[0].removesuffix(".") + "."


def _page(command: Any, ctx: Any) -> str:
    """Returns the help of a command, with colors if standard output is a terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    width = min(console.width, _WIDTH)
    with console.capture() as capture:
        for line in _lines(command, ctx, width):
            console.print(line, soft_wrap=True)
    return capture.get()


def _lines(command: Any, ctx: Any, width: int) -> Iterator[Text | str]:
    from rich.text import Text

    yield Text.assemble(("Usage: ", "bold"), " ".join([ctx.command_path, *_usage(command, ctx)]))
    for paragraph in _paragraphs(command):
        yield ""
        if paragraph.startswith("$ "):  # an example
            yield from (Text(_GAP + line, "cyan") for line in paragraph.splitlines())
        else:
            yield from textwrap.wrap(paragraph, width, break_on_hyphens=False)
    sections = {title: rows for title, rows in _sections(command, ctx).items() if rows}
    names = [len(name) for rows in sections.values() for name, _ in rows]
    indent = 2 * len(_GAP) + max((n for n in names if n <= _NAMES_WIDTH), default=0)
    for title, rows in sections.items():
        yield ""
        yield Text(f"{title}:", "bold")
        for name, text in rows:
            yield from _entry(name, text, indent, width)


def _entry(name: str, text: str, indent: int, width: int) -> Iterator[Text]:
    """Yields the lines of an option or command: its name on the left, the text on the right."""
    from rich.text import Text

    lines = textwrap.wrap(text, width - indent, break_on_hyphens=False, break_long_words=False)
    lines = [line.replace(_UNBROKEN, " ") for line in lines]
    if len(name) > indent - 2 * len(_GAP):
        yield Text(_GAP + name, "cyan")
    elif lines:
        yield Text.assemble(_GAP, (name.ljust(indent - len(_GAP)), "cyan"), lines.pop(0))
    for line in lines:
        yield Text(" " * indent + line)


def _sections(command: Any, ctx: Any) -> dict[str, list[_Row]]:
    """Returns the rows of a help page by title, in the order of the page."""
    sections: dict[str, list[_Row]] = {"Arguments": []}
    options: dict[str, list[_Row]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        if isinstance(parameter, TyperArgument):
            sections["Arguments"].append((_argument(parameter), _readable(record[1])))
            continue
        names = ", ".join(parameter.opts)
        takes = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar}"
        title = getattr(parameter, "rich_help_panel", None) or _OPTIONS
        if parameter.required:
            title = _REQUIRED
        options.setdefault(title, []).append((names + takes, _readable(record[1])))
    if isinstance(command, TyperGroup):
        sections |= _commands(command, ctx)
    first, last = options.pop(_REQUIRED, []), options.pop(_OPTIONS, [])  # --json and --help last
    return sections | {_REQUIRED: first} | options | {_OPTIONS: last}


def _usage(command: Any, ctx: Any) -> Iterator[str]:
    """Yields the words of a usage line after the name of the command."""
    yield "[OPTIONS]"
    if isinstance(command, TyperGroup):
        yield "COMMAND [ARGUMENTS]..."
    for parameter in command.get_params(ctx):
        if isinstance(parameter, TyperArgument):
            name = _argument(parameter)
            yield name if parameter.required else f"[{name}]"


def _argument(parameter: TyperArgument) -> str:
    more = "..." if parameter.nargs != 1 else ""
    return f"{parameter.metavar or str(parameter.name).upper()}{more}"


def _commands(group: Any, ctx: Any) -> dict[str, list[_Row]]:
    """Returns the rows of a group's commands, by the panel of their outermost group."""
    sections: dict[str, list[_Row]] = {}
    for words, command in visible_commands(group, ctx):
        outer = group.commands[words[0]]
        title = getattr(outer, "rich_help_panel", None) or "Commands"
        sections.setdefault(title, []).append((" ".join(words), summary(command)))
    return sections


def _paragraphs(command: Any) -> Sequence[str]:
    return inspect.cleandoc(command.help or "").split("\n\n")


def _readable(text: str) -> str:
    """Returns the help of an argument or option, with click's remarks in words."""
    for pattern, words in _REMARKS.items():
        text = re.sub(pattern, words, text)
    help_text, bracket, remarks = text.partition("  [")
    return f"{help_text} [{remarks.replace(' ', _UNBROKEN)}" if bracket else help_text
