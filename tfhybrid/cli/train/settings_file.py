"""The reader of a settings file. Errors name the line of the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tfhybrid.cli.data.sample_format import format_of
from tfhybrid.cli.train.column_section import COLUMN_LISTS, specs_of
from tfhybrid.cli.train.train_settings import Settings
from tfhybrid.core.yaml_file import YamlFile
from tfhybrid.errors import ConfigError

Location = tuple[str | int, ...]
_WORDS = {
    "extra_forbidden": "there is no such setting; `tfhybrid train --schema` lists all of them",
    "missing": "this setting is missing",
}
"""Messages for errors that pydantic describes in words of its own, by its name for them."""
_OF_BATCHES = {"bad_rows", "max_bad_rows", "bad_rows_file"}
_NOT_OF_FORMATS = {"train", "format", "batch_size", "window", *_OF_BATCHES, *COLUMN_LISTS}


class SettingsFile:
    """A YAML file of settings, read and checked when it is created.

    Args:
        path: Path of the file.

    Attributes:
        settings: The settings of the file.

    Raises:
        ConfigError: The file cannot be read or is not YAML, or settings are missing, unknown or
            out of range. The message names the line of each.
    """

    def __init__(self, path: Path) -> None:
        self._file = YamlFile(path)
        try:
            self.settings = Settings.model_validate(self._file.content)
        except ValidationError as error:
            raise ConfigError("\n".join(map(self._message, error.errors()))) from error

    def at(self, *location: str | int) -> str:
        """Returns the prefix of an error about a setting: file, line and name.

        Args:
            *location: Keys and indexes that lead to the setting, such as `"data", "batch_size"`.
        """
        return self._file.at(*location)

    def sample_format(self) -> Any:
        """Returns the `tfhybrid.data.Format` that the settings of the data describe.

        Raises:
            ConfigError: The format lacks an option that is set, or needs another one. The message
                names the line of the data.
        """
        data = self.settings.data
        try:
            columns = {
                field: specs_of(getattr(data, field), role) for field, role in COLUMN_LISTS.items()
            }
            return format_of(data.format, **data.model_dump(exclude=_NOT_OF_FORMATS), **columns)
        except ConfigError as error:
            raise ConfigError(f"{self.at('data')}: {error}") from error

    def _message(self, error: Any) -> str:
        location = self._in_file(error["loc"])
        if error["type"] in _WORDS:
            return f"{self.at(*location)}: {_WORDS[error['type']]}"
        received = error["input"]
        suffix = f". Received: {received!r}" if isinstance(received, str | int | float) else ""
        message = error["msg"].removeprefix("Value error, ")
        return f"{self.at(*location)}: {message[:1].lower()}{message[1:]}{suffix}"

    def _in_file(self, location: Location) -> Location:
        """Drops the type names that pydantic adds to a location when it tries several types."""
        keys: list[str | int] = []
        node = self._file.content
        for number, each in enumerate(location):
            inside = isinstance(node, dict) and each in node
            inside = inside or (isinstance(node, list) and isinstance(each, int))
            if inside:
                node = node[each]
                keys.append(each)
            elif number == len(location) - 1 and isinstance(node, dict):
                keys.append(each)  # the missing setting
        return tuple(keys)
