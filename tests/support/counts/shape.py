"""Figures about the size of functions and classes, and about questions asked in many places."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.counts.tree import Function, Module, Tree

MAX_PARAMETERS = 6
MAX_LINES = 40
MAX_METHODS = 20

_OWNERSHIP = re.compile(
    r"\bnodes is (not )?None|\bon_nodes is (not )?None|"
    r"isinstance\([^)]*(NodesEngine|NodeRows|ShardedRows|HostRows|ReplicatedRows|RowOwner)\b|"
    r"(?<!def )\bis_sharded\b|(?<!def )\bseveral_hosts\b|(?<!def )\basks_nodes\b|\bengine\.asks\b|"
    r"\bengine\.nodes\b(?!\()|_calls is (not )?None"
)


def functions_over_6_parameters(tree: Tree) -> list[str]:
    """Returns the functions with too many parameters; `self` and `cls` do not count."""
    return [
        f"{place} {count}"
        for place, function in _functions(tree)
        if (count := _parameters(function)) > MAX_PARAMETERS
    ]


def functions_over_40_lines(tree: Tree) -> list[str]:
    """Returns the functions whose body is too long."""
    return [
        place
        for place, function in _functions(tree)
        if (function.end_lineno or 0) - function.body[0].lineno > MAX_LINES
    ]


def classes_over_20_methods(tree: Tree) -> list[str]:
    """Returns the classes with too many methods."""
    return [
        f"{module.at(node.lineno)}: {node.name}"
        for module in tree.modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and _methods(node) > MAX_METHODS
    ]


def ownership_questions(tree: Tree) -> list[str]:
    """Returns the lines that ask who owns the rows of a table."""
    return _lines(tree, _OWNERSHIP)


def host_port_parsers(tree: Tree) -> list[str]:
    """Returns the lines that take `HOST:PORT` apart by hand."""
    return _lines(tree, re.compile(r'partition\(":"\)'))


def handlers_by_hand(tree: Tree) -> list[str]:
    """Returns the functions that answer a remote call with an `Answer` of their own."""
    return [
        place
        for place, function in _functions(tree)
        if function.returns is not None and ast.unparse(function.returns) == "Answer"
    ]


def current_job_calls(tree: Tree) -> list[str]:
    """Returns the places that reach for the job of the process instead of being given it."""
    return [
        module.at(node.lineno)
        for module in tree.modules
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "current_job"
    ]


def core_members(tree: Tree, header: str, name: str) -> list[str]:
    """Returns the declarations in a class of the core: its methods and fields, approximately."""
    if not tree.has(header):
        return []
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", tree.text(header), flags=re.DOTALL)
    start = re.search(rf"\bclass {name}\b[^;{{]*\{{", text)
    body = _first_level(text[start.end() :]) if start else ""
    parts = [" ".join(part.split()) for part in re.split(r";|\}", body)]
    return [f"{header}: {part}" for part in parts if re.search(r"\w", part)]


def _first_level(text: str) -> str:
    """Returns what stands before the brace that closes the class, without inner braces."""
    depth, body = 1, ""
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            break
        if depth == 1:
            body += char
    return body


def _functions(tree: Tree) -> Iterator[tuple[str, Function]]:
    for module in tree.modules:
        for node in module.nodes:
            if isinstance(node, Function):
                yield f"{module.at(node.lineno)}: {node.name}", node


def _parameters(function: Function) -> int:
    arguments = function.args
    is_method = bool(arguments.args) and arguments.args[0].arg in ("self", "cls")
    return len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs) - is_method


def _methods(node: ast.ClassDef) -> int:
    return sum(isinstance(each, ast.FunctionDef) for each in node.body)


def _lines(tree: Tree, pattern: re.Pattern[str]) -> list[str]:
    return [place for module in tree.modules for place in _lines_of(module, pattern)]


def _lines_of(module: Module, pattern: re.Pattern[str]) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if pattern.search(line) and not line.lstrip().startswith(("#", '"')):
            yield f"{module.at(number)}: {line.strip()}"
