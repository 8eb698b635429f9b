"""Finds the library of the native ops that fits the installed TensorFlow.

TensorFlow's C++ interface changes with every release. A library compiled for another release fails
with a mangled symbol name, or worse, loads. So `_build_info.json` is read before the ops are
loaded. It lies beside the libraries and has one of two forms:

- setup.py compiles one library, for one release:
  `{"tensorflow": "2.16.2", "definitions": [...]}`.
- A wheel of scripts/wheels has a library for each minor release, which works with all its patches:
  `{"libraries": {"2.16": {"tensorflow": "2.16.2", "definitions": [...]}, ...}}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_LIBRARY = _FOLDER / "libtfhybrid_ops.so"  # of setup.py
_REBUILD = "to rebuild them, run `pip install --force-reinstall --no-deps .` in its source tree"


def built_releases(directory: Path = _FOLDER) -> list[str]:
    """Returns the releases of TensorFlow that the ops were compiled for, without importing it.

    Args:
        directory: Folder of the libraries and of _build_info.json. Default: this package's.

    Returns:
        One version such as `"2.16.2"`, or those of a wheel, such as `["2.16.*", "2.21.*"]`, the
        oldest first. Empty if the ops are not built.
    """
    try:
        built = _read(directory)
    except FileNotFoundError:
        return []
    if "libraries" in built:
        return [f"{minor}.*" for minor in built["libraries"]]
    return [built["tensorflow"]]


def find_library(directory: Path = _FOLDER) -> Path:
    """Finds the library of ops that was compiled for the installed TensorFlow.

    Args:
        directory: Folder of the libraries and of _build_info.json. Default: this package's.

    Raises:
        ImportError: The libraries are missing, or were compiled for other releases or with other
            flags. The message says how to mend it.
    """
    import tensorflow as tf

    try:
        built = _read(directory)
    except FileNotFoundError:
        raise ImportError(f"tfhybrid's native ops are not built; {_REBUILD}.") from None
    name = _LIBRARY.name
    if "libraries" in built:
        name, built = _library_of_wheel(built["libraries"], tf.__version__)
    flags = tf.sysconfig.get_compile_flags()
    installed = {
        "tensorflow": tf.__version__,
        "definitions": sorted(flag[2:] for flag in flags if flag.startswith("-D")),
    }
    if built != installed:
        raise ImportError(
            f"tfhybrid's native ops were compiled for {_describe(built)}; {_REBUILD}. "
            f"Received: {_describe(installed)}."
        )
    return directory / name


def _library_of_wheel(
    libraries: dict[str, dict[str, Any]], version: str
) -> tuple[str, dict[str, Any]]:
    """Returns the name of a wheel's library for a TensorFlow, and what it was compiled for."""
    minor = ".".join(version.split(".")[:2])
    if minor not in libraries:
        raise ImportError(
            f"This wheel of tfhybrid has native ops for TensorFlow {', '.join(libraries)} only: "
            "install one of these, or tfhybrid's source distribution, which compiles the ops. "
            f"Received: TensorFlow {version}."
        )
    return f"libtfhybrid_ops-{minor}.so", {**libraries[minor], "tensorflow": version}


def _read(directory: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((directory / "_build_info.json").read_text())
    return fields


def _describe(build: dict[str, Any]) -> str:
    return f"TensorFlow {build['tensorflow']} ({' '.join(build['definitions'])})"
