"""Which files a file depends on, directly or not."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

from tests.support.dependencies.native import NativeGraph, script_uses
from tests.support.dependencies.python import PythonGraph
from tests.support.dependencies.repository import Repository


class Graph:
    """The include graph and the import graph of a repository.

    Args:
        repository: The repository. Each of its files is read once, when it is first asked about.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._python = PythonGraph(repository)
        self._native = NativeGraph(repository)

    def reach(self, file: str) -> set[str]:
        """Returns the file and all that it depends on."""
        reached, ahead = {file}, [file]
        while ahead:
            new = self._uses(ahead.pop()) - reached
            reached |= new
            ahead += new
        return reached

    @cache  # noqa: B019 - a graph lives as long as the program
    def _uses(self, node: str) -> set[str]:
        file = node.partition("::")[0]
        match PurePosixPath(file).suffix:
            case ".py":
                return self._python.uses(node)
            case ".cc" | ".h":
                return self._native.uses(file)
            case "" | ".patch":
                return script_uses(self.repository, file)
        return set()
