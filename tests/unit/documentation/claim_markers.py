"""Conditions in pages: comments that say what would make a sentence untrue.

A page that denies something names what would make the sentence untrue, in a comment behind it that
readers do not see:

    <!-- untrue if: tfhybrid.TableConfig(*dtype*=); custom_ops/**/*.cu -->
    <!-- true while: tfhybrid/config/table_config.py says "lazy=False cannot be combined" -->

What follows `untrue if:` must not exist; what follows `true while:` must. A condition is one of:

| Condition | Exists if |
| --- | --- |
| `tfhybrid.layers.Embedding` | the package has the name |
| `tfhybrid.init(seed=)` | the function or class has the argument |
| `tfhybrid nodes add` | the command line has the command |
| `tfhybrid nodes status --json` | the command has the option |
| `stream.yaml: publish.seconds` | the file of settings may have the key |
| `benchmarks/results/step.json` | the tree has the file or folder |
| `PATH says "text"`, `PATH says 'text'` | the file has the text, in one line or several |
| `PATH::name` | the file has the test or the function |

The last name of a condition may have wildcards, such as `*dtype*`. What stands before it must
exist, so a misspelt condition is an error.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from tests.unit.documentation import settings_page
from tfhybrid.cli.main import app
from tfhybrid.cli.train.train_settings import Settings
from tfhybrid.cluster import cluster_file
from tfhybrid.config.row_policy import Admission, Eviction
from tfhybrid.stream.provider.lease_length import LeaseLength
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit.publisher import PublishRules

ROOT = Path(__file__).resolve().parents[3]

UNTRUE_IF, TRUE_WHILE = "untrue if", "true while"
_MARKER = re.compile(rf"<!-- ({UNTRUE_IF}|{TRUE_WHILE}): (.+?) -->")
_ANY_COMMENT = re.compile(rf"<!--\s*({UNTRUE_IF}|{TRUE_WHILE})\b")
_CONDITION = re.compile(r"""(?:[^;"']|"[^"]*"|'[^']*')+""")
# What a table or a list of a page denies.
NEGATIVE = re.compile(r"\b(not|no|none|never|nothing|cannot)\b", re.IGNORECASE)


class MarkerError(Exception):
    """A condition that can never be judged, because it is misspelt."""


@dataclasses.dataclass(frozen=True)
class Marker:
    """A condition of a page.

    Attributes:
        kind: `UNTRUE_IF` or `TRUE_WHILE`.
        condition: Text of the condition.
    """

    kind: str
    condition: str

    def holds(self) -> bool:
        """Returns whether the page may say what it says.

        Raises:
            MarkerError: The condition is misspelt.
        """
        return exists(self.condition) == (self.kind == TRUE_WHILE)


def markers(text: str) -> list[Marker]:
    """Returns the conditions in a text of Markdown.

    Raises:
        MarkerError: A comment begins like a condition and is none.
    """
    found = _MARKER.findall(text)
    if len(found) != len(_ANY_COMMENT.findall(text)):
        raise MarkerError(f"a comment is not written like {UNTRUE_IF!r}: {text}")
    return [
        Marker(kind, condition.strip())
        for kind, conditions in found
        for condition in _CONDITION.findall(conditions)
    ]


def statements(text: str) -> list[str]:
    """Returns the items of all lists and the rows of all tables of a page, without headers."""
    found: list[str] = []
    for line, following in itertools.pairwise([*text.splitlines(), ""]):
        if line.startswith("- ") or (line.startswith("|") and not following.startswith("| ---")):
            found.append(line)
        elif line.startswith("  ") and found and found[-1].startswith("- "):
            found[-1] += "\n" + line
        else:
            found.append("")  # what follows continues nothing
    return [each for each in found if each and not re.fullmatch(r"[| -:]*", each)]


def denials(text: str, columns: Iterable[int] | None = None) -> list[str]:
    """Returns the items and rows of a page that deny something.

    Args:
        text: Text of the page.
        columns: Numbers of the columns of a row in which a word of denial counts. Default all.
    """
    found = []
    for statement in statements(text):
        counted = _MARKER.sub("", statement)
        if statement.startswith("|") and columns is not None:
            cells = counted.strip().strip("|").split("|")
            counted = " ".join(cells[number] for number in columns)
        if NEGATIVE.search(counted):
            found.append(statement)
    return found


def unmarked(found: Iterable[str]) -> list[str]:
    """Returns the statements that name no condition."""
    return [statement for statement in found if not markers(statement)]


def exists(condition: str) -> bool:
    """Returns whether what a condition names exists.

    Raises:
        MarkerError: The condition is of no kind, or what it stands in does not exist.
    """
    for pattern, judge in _KINDS:
        if fields := re.fullmatch(pattern, condition):
            return judge(*fields.groups())
    raise MarkerError(f"no kind of condition: {condition!r}")


def _matches(names: Iterable[str], pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _read(path: str) -> str:
    if not (ROOT / path).is_file():
        raise MarkerError(f"no file {path!r}")
    return (ROOT / path).read_text()


def has_test(path: str, name: str) -> bool:
    """Returns whether a file of Python or C++ has a test or a function of this name.

    Raises:
        MarkerError: There is no such file.
    """
    python = path.endswith(".py")
    define = rf"^def {name}\(" if python else rf"\w*TEST\w*\([\w,\s]*\b{name}\)"
    return re.search(define, _read(path), re.MULTILINE) is not None


def _has_text(path: str, text: str | None, other: str | None) -> bool:
    content = _read(path)
    if path.endswith(".py"):  # adjacent literals are one text
        content = re.sub(r'"\s*\n\s*f?"', "", content)
    return _spaced(text or other or "") in _spaced(content)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _has_path(path: str) -> bool:
    fixed = re.split(r"[*?\[]", path)[0]
    parent = ROOT / (fixed.rpartition("/")[0])
    if not parent.is_dir():
        raise MarkerError(f"no folder {fixed.rpartition('/')[0]!r} of {path!r}")
    return any(ROOT.glob(path.rstrip("/")))


def _named(name: str) -> Any:
    """Returns the module or object of a dotted name."""
    first, *rest = name.split(".")
    value = importlib.import_module(first)
    for count, part in enumerate(rest, 2):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join([first, *rest][:count]))
            except ModuleNotFoundError as error:
                raise MarkerError(f"no name {name!r}") from error
    return value


def _has_name(parent: str, name: str) -> bool:
    return _matches({*dir(_named(parent)), *getattr(_named(parent), "__all__", ())}, name)


def _has_argument(function: str, name: str) -> bool:
    function_or_class = _named(function)
    if not callable(function_or_class):
        raise MarkerError(f"{function!r} is no function and no class")
    return _matches(inspect.signature(function_or_class).parameters, name)


def _has_command(words: str, option: str | None) -> bool:
    path = words.split()
    command: Any = typer.main.get_command(app)
    for word in path if option else path[:-1]:
        commands = getattr(command, "commands", {})
        if word not in commands:
            raise MarkerError(f"no command {word!r} of 'tfhybrid {words}'")
        command = commands[word]
    if option:
        return _matches([name for each in command.params for name in each.opts], option)
    if not hasattr(command, "commands"):
        raise MarkerError(f"no group of commands in 'tfhybrid {words}'")
    return _matches(command.commands, path[-1])


def _has_key(file: str, place: str, key: str) -> bool:
    sections = _SECTIONS.get(file)
    if sections is None:
        raise MarkerError(f"no file of settings {file!r}; there are {[*_SECTIONS]}")
    keys = sections().get(place.rstrip("."))
    if keys is None:
        raise MarkerError(f"{file} has no section {place!r}; it has {[*sections()]}")
    return _matches(keys, key)


def _of_stream() -> dict[str, Iterable[str]]:
    kinds: dict[str, Any] = {
        **{"": StreamSettings, "lease": LeaseLength, "routes": Routes, "publish": PublishRules},
        **{"policies.admission": Admission, "policies.eviction": Eviction},
    }
    return {place: inspect.signature(kind).parameters for place, kind in kinds.items()}


def _of_cluster() -> dict[str, Iterable[str]]:
    return {"": cluster_file._FIELDS, "roles": cluster_file._ROLE_FIELDS}


def _of_model() -> dict[str, Iterable[str]]:
    return {place: section.model_fields for place, section in settings_page.sections(Settings)}


_SECTIONS: dict[str, Callable[[], dict[str, Iterable[str]]]] = {
    "stream.yaml": _of_stream,
    "cluster.yaml": _of_cluster,
    "model.yaml": _of_model,
}

# Kinds of conditions: what one looks like, and the function that judges it.
_KINDS: tuple[tuple[str, Callable[..., bool]], ...] = (
    (r"""(\S+) says (?:"([^"]+)"|'([^']+)')""", _has_text),
    (r"([\w./-]+)::(\w+)", has_test),
    (r"([\w-]+\.yaml): ((?:[\w-]+\.)*)([\w*?-]+)", _has_key),
    (r"tfhybrid ((?:[a-z][a-z-]* )*[a-z*][a-z*-]*)(?: (--[a-z*-]+))?", _has_command),
    (r"(tfhybrid(?:\.\w+)*)\(([\w*?]+)=\)", _has_argument),
    (r"(tfhybrid(?:\.\w+)*)\.([\w*?]+)", _has_name),
    (r"([\w.*?\[\]-]+/[\w./*?\[\]-]*)", _has_path),
)
