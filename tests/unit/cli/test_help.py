"""Help reads as one text, in groups; docs/command_line.md lists the same commands in its order.

A value is described by a noun phrase, a flag by what it makes the command do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup, TyperOption
from typer.testing import CliRunner

from tfhybrid.cli.main import TASKS, app
from tfhybrid.cli.terminal.help_page import summary, visible_commands

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/command_line.md").read_text()
COMMAND = typer.main.get_command(app)
CONTEXT = typer.Context(COMMAND)
MOST_OPTIONS = 15
VERBS = {
    *("Check", "Compare", "Convert", "Copy", "End", "Find", "List", "Move", "Point", "Predict"),
    *("Publish", "Put", "Remove", "Run", "Show", "Start", "Train", "Watch", "Write"),
}
FLAG_VERBS = {
    *("Add", "Also", "Check", "Drop", "Install", "Let", "Print", "Publish", "Read", "Replace"),
    *("Run", "Send", "Shard", "Show", "Write"),
}


def everything(words: tuple[str, ...] = (), of: Any = COMMAND) -> Iterator[tuple[str, Any]]:
    """All commands and groups, by what is typed after `tfhybrid`."""
    yield " ".join(words), of
    for name, command in getattr(of, "commands", {}).items():
        yield from everything((*words, name), command)


ALL = dict(everything())


def parameters(command: Any) -> list[Any]:
    return [each for each in command.get_params(CONTEXT) if not getattr(each, "hidden", False)]


@pytest.mark.parametrize("command", ALL.values(), ids=ALL)
def test_help_begins_with_an_imperative_and_is_whole_sentences(command: Any) -> None:
    first, *others = command.help.split("\n\n")
    assert first.split()[0].rstrip(",") in VERBS
    assert summary(command).count(".") == 1
    assert len(summary(command)) <= 80
    for paragraph in (first, *others):
        assert paragraph.strip()[-1] == "." or paragraph.strip().startswith("$ ")
    assert not re.search(r"(?i)likewise|as of ", command.help)


@pytest.mark.parametrize("command", ALL.values(), ids=ALL)
def test_every_option_has_help_in_one_voice(command: Any) -> None:
    for each in parameters(command):
        assert each.help, each.name
        assert each.help[-1] == "."
        assert not each.help.startswith(("The ", "A ", "An ")), each.help
        if getattr(each, "is_flag", False):
            assert each.help.split()[0] in FLAG_VERBS, each.help
        else:
            assert each.help.split()[0] not in FLAG_VERBS, each.help
            assert not isinstance(each, TyperOption) or each.metavar, each.name


@pytest.mark.parametrize("command", ALL.values(), ids=ALL)
def test_no_group_of_options_has_more_than_fifteen(command: Any) -> None:
    options = [each for each in parameters(command) if isinstance(each, TyperOption)]
    panels = Counter(each.rich_help_panel for each in options)
    assert max(panels.values()) <= MOST_OPTIONS


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", ALL)
def test_help_fits_the_terminal_and_is_plain_in_a_pipe(words: str, width: int) -> None:
    shown = CliRunner().invoke(app, [*words.split(), "--help"], env={"COLUMNS": str(width)})
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= width
    assert shown.stdout.isascii()
    assert "\x1b" not in shown.stdout
    assert not re.search(r"<=|>=|<(int|str|float|bool|path)", shown.stdout)
    for each in parameters(ALL[words]):
        assert each.opts[0] in shown.stdout or each.metavar or each.name.upper() in shown.stdout


def test_alone_it_shows_the_commands_by_task() -> None:
    shown = CliRunner().invoke(app, [])
    titles = re.findall(r"(?m)^(\S.*):$", shown.stdout)
    assert titles == [task for task in TASKS if task in titles] + ["Options"]
    assert shown.stderr == ""
    for words, command in visible_commands(COMMAND, CONTEXT):
        assert re.search(rf"(?m)^  {' '.join(words)}  +{command.help.split()[0]}", shown.stdout)


def test_every_command_belongs_to_a_task() -> None:
    assert {each.rich_help_panel for each in COMMAND.commands.values()} <= set(TASKS)


def test_the_page_lists_the_commands_by_task_in_the_order_of_the_help() -> None:
    by_task: dict[str, list[str]] = {}
    for words, _ in visible_commands(COMMAND, CONTEXT):
        by_task.setdefault(COMMAND.commands[words[0]].rich_help_panel, []).append(" ".join(words))
    table = PAGE[PAGE.index("| Task |") :].partition("\n\n")[0]
    listed: dict[str, list[str]] = {}
    task = ""
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        task = cells[0] or task
        (command,) = re.findall(r"^`tfhybrid ((?:[a-z]+(?=[ `]) ?)+)", cells[1])
        listed.setdefault(task, []).append(command.strip())
    assert list(listed.items()) == list(by_task.items())


def test_sections_of_the_page_are_in_the_order_of_the_help() -> None:
    names = list(COMMAND.list_commands(CONTEXT))
    titles = re.findall(r"(?m)^## (.*)", PAGE)
    sections = [name for title in titles for name in title.split(" and ")]
    assert sections == [name for name in names if name in sections]
    assert {"doctor", "plan", "checkpoint"} <= {*sections}


def test_options_that_the_page_names_exist() -> None:
    known = {name for command in ALL.values() for each in parameters(command) for name in each.opts}
    known |= {"--no-deps", "--shm-size"}  # of pip and docker
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known


# A user's shell, in which `tfhybrid` is this one.
PROGRAM = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tfhybrid.cli import app
app()
"""
BASH = """
source <(tfhybrid --show-completion)
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tfhybrid_completion tfhybrid
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of the shell."""
    program = tmp_path / "bin" / "tfhybrid"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, root=str(ROOT)))
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("tfhybrid che", ["checkpoint"]),
        ("tfhybrid st", ["store", "stream"]),
        ("tfhybrid checkpoint ver", ["verify"]),
        ("tfhybrid plan --mea", ["--measure"]),
    ],
)
def test_bash_completes(shell: dict[str, str], typed: str, completed: list[str]) -> None:
    script = BASH.format(words=typed)
    run = subprocess.run(
        ["bash", "-c", script], env=shell, capture_output=True, text=True, check=True
    )
    assert sorted(run.stdout.split()) == completed, run.stderr


def test_the_script_for_zsh_asks_the_same_program(shell: dict[str, str]) -> None:
    request = {"_TFHYBRID_COMPLETE": "source_zsh"}
    script = subprocess.run(
        ["tfhybrid"], env=shell | request, capture_output=True, text=True, check=True
    ).stdout
    assert script.lstrip().startswith("#compdef tfhybrid")
    assert "_TFHYBRID_COMPLETE=complete_zsh tfhybrid" in script
    request = {"_TFHYBRID_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tfhybrid che"}
    answer = subprocess.run(
        ["tfhybrid"], env=shell | request, capture_output=True, text=True, check=True
    ).stdout
    assert '"checkpoint":"Show, check, compare' in answer


# Each would make a completion or a help slower by a tenth of a second or more.
HEAVY = ("tensorflow", "horovod", "keras", "numpy", "pyarrow", "ruamel")


def test_help_and_completion_import_nothing_heavy() -> None:
    script = "import sys, tfhybrid.cli; tfhybrid.cli.app(['plan', '--help'], standalone_mode=False)"
    script += f"; sys.exit(', '.join(m for m in {HEAVY} if m in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stderr.strip() == ""
    assert "--rows N" in run.stdout


def test_groups_are_commands_too() -> None:
    groups = [words for words, each in ALL.items() if isinstance(each, TyperGroup)]
    for words in groups:
        shown = CliRunner().invoke(app, words.split())
        assert (shown.exit_code, shown.stderr) == (2, "")
        assert shown.stdout.startswith("Usage: ")
