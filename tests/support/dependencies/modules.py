"""The Python modules of a repository, and the files that importing a name runs."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import PurePosixPath

from tests.support.dependencies.imports import Import, imports, lazy_names, running_nodes
from tests.support.dependencies.repository import Repository


class Modules:
    """Modules by their dotted names."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._files = {
            file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file
            for file in repository.files
            if file.endswith(".py")
        }

    def file(self, name: str) -> str | None:
        """Returns the file of a module."""
        return self._files.get(name)

    @cache  # noqa: B019 - it lives as long as the program
    def tree(self, file: str) -> ast.Module:
        """Returns what a file says."""
        try:
            return ast.parse(self._repository.text(file))
        except SyntaxError:  # it has changed, so the tests that use it are run anyway
            return ast.Module([], [])

    @cache  # noqa: B019
    def nodes(self, file: str) -> list[ast.AST]:
        """Returns the nodes of a file that run."""
        return running_nodes(self.tree(file))

    @cache  # noqa: B019
    def imports(self, file: str) -> list[Import]:
        """Returns the imports of a file."""
        return [*imports(self.nodes(file), PurePosixPath(file).parent.parts)]

    def run_by(self, name: str, file: str, *, whole: bool) -> set[str]:
        """Returns the files that run when a file imports a dotted name.

        Args:
            name: The name; `a.b.` and `a.b.*` are all names in `a.b`.
            file: The file. A script, which is in no package, finds the modules beside it, too.
            whole: Whether the name of a package is all that can be reached through it.
        """
        folder = PurePosixPath(file).parent
        run = self._run_by(name, whole)
        if not run and f"{folder}/__init__.py" not in self._repository.files:
            run = self._run_by(".".join([*folder.parts, name]), whole)
        return run

    @cache  # noqa: B019
    def _run_by(self, name: str, whole: bool) -> set[str]:
        parts = name.split(".")
        prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        known = [prefix for prefix in prefixes if prefix in self._files]
        if not known:
            return set()
        module = known[-1]
        rest = name[len(module) + 1 :].split(".")[0]
        further = self._lazy_names(module)
        if rest == "" and name.endswith("."):
            names = [each for each in self._files if each.startswith(name)]
        elif rest == "*" or (rest == "" and whole):
            names = [*further.values(), *({f"{module}.__main__"} & self._files.keys())]
        else:
            names = [further[rest]] if rest in further else []
        return {self._files[each] for each in known}.union(
            *(self._run_by(each, whole) for each in names)
        )

    def _lazy_names(self, module: str) -> dict[str, str]:
        """Returns the lazy names of a package, without modules that it names but does not have."""
        file = self._files[module]
        if not file.endswith("/__init__.py"):
            return {}
        names = lazy_names(module, self.tree(file))
        return {
            name: whole
            for name, whole in names.items()
            if whole in self._files or whole != f"{module}.{name}"
        }
