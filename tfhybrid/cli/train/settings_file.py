"""Reads a file of settings; errors name the line of the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError

from tfhybrid.cli.train.train_settings import Settings
from tfhybrid.errors import ConfigError

Place = tuple[str | int, ...]


class SettingsFile:
    """A YAML file of settings.

    Args:
        path: The file.

    Raises:
        ConfigError: It is not YAML, or a setting is missing, unknown or out of range; the message
            names each one's     names each one's line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._tree: Any = YAML(typ="rt").load(path.read_text())
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            raise ConfigError(f"{path}:{line}: {error.problem or error.context}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        try:
            self.settings = Settings.model_validate(self._tree)
        except ValidationError as error:
            raise ConfigError("\n".join(map(self._told, error.errors()))) from error

    def at(self, *place: str | int) -> str:
        """Returns the prefix of an error about a setting: file, line and name."""
        return f"{self._path}:{self._line(place)}: {'.'.join(map(str, place))}"

    def _told(self, error: Any) -> str:
        place = self._known(error["loc"])
        received = error["input"]
        shown = f". Received: {received!r}" if isinstance(received, str | int | float) else ""
        if error["type"] == "missing":
            shown = ""
        message = error["msg"].removeprefix("Value error, ")
        return f"{self.at(*place) or self._path}: {message[:1].lower()}{message[1:]}{shown}"

    def _known(self, place: Place) -> Place:
        """Removes the type names that pydantic adds to a location when it tries several types."""
        found: list[str | int] = []
        node = self._tree
        for number, each in enumerate(place):
            inside = isinstance(node, dict) and each in node
            inside = inside or (isinstance(node, list) and isinstance(each, int))
            if inside:
                node = node[each]
                found.append(each)
            elif number == len(place) - 1 and isinstance(node, dict):
                found.append(each)  # what is missing
        return tuple(found)

    def _line(self, place: Place) -> int:
        """Returns the line of a setting, or of the section in which it is missing."""
        node, line = self._tree, 1
        for each in place:
            if isinstance(node, CommentedMap) and each in node:
                line = node.lc.key(each)[0] + 1
            elif isinstance(node, CommentedSeq) and isinstance(each, int) and each < len(node):
                line = node.lc.item(each)[0] + 1
            else:
                break
            node = node[each]
        return line
