"""Figures about the English of docstrings and the names of variables."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from tests.support.counts.tree import Documented, Module, Tree

# An entry of `Args:` or `Attributes:` that begins with one of these has no noun.
_PREPOSITION = re.compile(
    r"(as|of|at|by|for|from|in|on|to|with|without|under|behind|before|after|between|beside|beyond|"
    r"within|until|since|among|over|above|below|into|likewise)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(what|who|whom|whose|that|there|those|it|they)\b", re.IGNORECASE)
_RIDDLE = re.compile(
    r"(as of|likewise|what|who|whom|which|by|with|that|there|of|until)\b", re.IGNORECASE
)
_VAGUE_NAMES = {"its", "told", "said", "found", "asked", "wanted", "made", "shown", "known"}

_SECTION = re.compile(r"\s*[A-Z][a-z]+:")
_ENTRY = re.compile(r"\s+\*{0,2}[\w`., *]+?(?: \([^)]*\))?:\s*(.*)")

# A line of prose of one to three words, with prose below: a re-wrapper broke it there.
_STUB = re.compile(r"\s*[A-Za-z]\w*( \w[\w'`,]*){0,2}$")
_PROSE = re.compile(r"\s*(?!```)[A-Za-z`]")
_FULL_LINE = 60


def args_without_noun(tree: Tree) -> list[str]:
    """Returns the entries of `Args:` that begin with a preposition."""
    return [place for place, text in _all_entries(tree) if _PREPOSITION.match(text)]


def args_that_are_a_clause(tree: Tree) -> list[str]:
    """Returns the entries of `Args:` that begin with What, Who, That or the like."""
    return [
        place
        for place, text in _all_entries(tree)
        if _CLAUSE.match(text) and not _PREPOSITION.match(text)
    ]


def docstrings_that_open_as_a_riddle(tree: Tree) -> list[str]:
    """Returns the docstrings that begin with neither a noun nor a verb."""
    return [
        f"{_place(module, node)}: {text.splitlines()[0]}"
        for module in tree.modules
        for node, text in module.documented()
        if _RIDDLE.match(text)
    ]


def vague_variables(tree: Tree) -> list[str]:
    """Returns the variables and parameters whose name does not say what they hold."""
    return [
        f"{module.at(node.lineno)}: {name}"
        for module in tree.modules
        for node in module.nodes
        if isinstance(node, ast.Name | ast.arg) and (name := _bound_name(node)) in _VAGUE_NAMES
    ]


def damaged_docstrings(tree: Tree) -> list[str]:
    """Returns the lines of docstrings that a re-wrapper broke after a few words."""
    return [
        f"{module.at(node.body[0].lineno)}: {line.strip()!r}"
        for module in tree.modules
        for node, _ in module.documented()
        for line in _broken_lines(ast.get_docstring(node, clean=False) or "")
    ]


def _all_entries(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yields the place and the text of each entry of `Args:` and `Attributes:`."""
    for module in tree.modules:
        for node, text in module.documented():
            for line, description in _entries(text):
                yield f"{_place(module, node)}: {line}", description


def _entries(docstring: str) -> Iterator[tuple[str, str]]:
    """Yields the first line of each entry, whole and without the name of the argument."""
    section, indent = "", 0
    for line in docstring.splitlines():
        if _SECTION.fullmatch(line):
            section, indent = line.strip(), 0
        elif section in ("Args:", "Attributes:") and line.strip():
            own_indent = len(line) - len(line.lstrip())
            indent = indent or own_indent
            entry = _ENTRY.match(line)
            if entry and own_indent == indent:
                yield line.strip(), entry[1]


def _broken_lines(docstring: str) -> Iterator[str]:
    is_code = False
    for line, following in itertools.pairwise(docstring.splitlines()):
        is_code ^= line.strip().startswith("```")
        is_stub = _STUB.match(line) and len(line.rstrip()) < _FULL_LINE
        if is_stub and not is_code and _PROSE.match(following):
            yield line


def _bound_name(node: ast.Name | ast.arg) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node.ctx, ast.Store) else ""


def _place(module: Module, node: Documented) -> str:
    return module.at(getattr(node, "lineno", 1))
