"""Files of settings in YAML 1.2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tfhybrid.errors import ConfigError


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Returns the content of a file: mappings, lists, texts, numbers, true, false and null.

    Args:
        path: Path of the YAML file.

    Raises:
        ConfigError: The file cannot be read, or is not YAML; the message names the line.
    """
    try:
        return YAML(typ="safe", pure=True).load(Path(path).read_text())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        why = error.problem or error.context
        raise ConfigError(f"{path}:{line} cannot be read: {why}") from error
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
