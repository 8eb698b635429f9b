"""Figures about what stands around the package: tests, deliberate bugs and documentation."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from tests.support.counts.tree import Tree
from tests.support.dependencies.imports import imports

_PATH = re.compile(r"`((?:tfhybrid|custom_ops|tests|benchmarks|scripts|examples)/[\w./-]+)`")


def imports_from_test_modules(tree: Tree) -> list[str]:
    """Returns the files of `tests` that import from a `test_*.py`, one for each import."""
    return [
        f"{file}: {each.module}"
        for file in tree.files("tests", "*.py")
        if "test_" in (text := tree.text(file))
        for each in imports(ast.walk(ast.parse(text)), PurePosixPath(file).parent.parts)
        if re.match(r"tests\.(.*\.)?test_\w", each.module)
    ]


def patches_whose_file_is_gone(tree: Tree) -> list[str]:
    """Returns the deliberate bugs that edit a file that is not there."""
    return _missing(tree, re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE))


def patches_whose_suite_is_gone(tree: Tree) -> list[str]:
    """Returns the deliberate bugs that name tests that are not there."""
    return _missing(tree, re.compile(r"^Noticed by: (?!native$)(.+)$", re.MULTILINE))


def dead_paths_in_docs(tree: Tree) -> list[str]:
    """Returns the paths that a page names and that are not there."""
    pages = [*tree.files("docs", "*.md"), *(path.name for path in sorted(tree.root.glob("*.md")))]
    return [
        f"{page}: {path}"
        for page in pages
        for path in sorted(set(_PATH.findall(tree.text(page))))
        if not tree.has(path)
    ]


def _missing(tree: Tree, pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{patch}: {path}"
        for patch in tree.files("tests", "*.patch")
        for paths in pattern.findall(tree.text(patch))
        for path in paths.split()
        if not tree.has(path)
    ]
