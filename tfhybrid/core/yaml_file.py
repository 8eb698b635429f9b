"""Files of settings in YAML 1.2."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from tfhybrid.errors import ConfigError


class YamlFile:
    """Content of a file of settings, and the line of each setting, for errors.

    Args:
        path: Path of the file.

    Attributes:
        path: Path of the file.
        content: Mappings, lists, texts, numbers, true, false and null.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or has a key twice in one mapping. The
            message names the line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._text = self.path.read_text()
            self.content: Any = YAML(typ="safe", pure=True).load(self._text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            raise ConfigError(f"{path}:{line}: {error.problem or error.context}") from error
        except (OSError, UnicodeDecodeError, YAMLError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error

    def at(self, *location: str | int) -> str:
        """Returns the prefix of an error about a setting: file, line and name.

        Args:
            *location: Keys and indexes that lead to the setting, such as `"data", "batch_size"`.
                For a setting that is missing, the line is that of its section.
        """
        node, line = YAML(typ="safe", pure=True).compose(self._text), 1
        for each in location:
            children = _children(node)
            if str(each) not in children:
                break
            line, node = children[str(each)]
        name = ".".join(map(str, location))
        return f"{self.path}:{line}: {name}" if name else f"{self.path}:{line}"

    def check(
        self, names: Collection[str], content: object, *location: str | int
    ) -> dict[str, Any]:
        """Returns a section of the file, after checking that it has no other fields.

        Args:
            names: Names of the fields that the section may have.
            content: Section to check, without old names of fields.
            *location: Keys and indexes that lead to the section. Default: none, the whole file.

        Raises:
            ConfigError: The section is no mapping, or has another field.
        """
        if not isinstance(content, dict):
            where, received = self.at(*location), content
        elif unknown := [key for key in content if key not in names]:
            where, received = self.at(*location, unknown[0]), unknown[0]
        else:
            return content
        raise ConfigError(
            f"{where}: the fields must be from {tuple(names)}. Received: {received!r}"
        )


def _children(node: Any) -> dict[str, tuple[int, Any]]:
    """Returns the line and the node of each value in a node of the file, by key or index."""
    if isinstance(node, MappingNode):
        return {key.value: (key.start_mark.line + 1, value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return {str(i): (item.start_mark.line + 1, item) for i, item in enumerate(node.value)}
    return {}
