"""Checks that the ops were compiled for the installed TensorFlow.

TensorFlow's C++ interface changes with every release. A library compiled for another release fails
with a mangled symbol name, or worse, loads. So setup.py records the release in _build_info.json,
which is checked before the ops are loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tensorflow as tf

_REBUILD = "to rebuild them, run `pip install --force-reinstall --no-deps .` in its source tree"


def check_build(directory: Path = Path(__file__).parent) -> None:
    """Checks that the libraries in `directory` were compiled for the installed TensorFlow.

    Args:
        directory: Folder of the libraries and of _build_info.json. Default: this package's.

    Raises:
        ImportError: The libraries are missing, or were compiled for another release or with other
            flags. The message has the command that rebuilds them.
    """
    try:
        built = json.loads((directory / "_build_info.json").read_text())
    except FileNotFoundError:
        raise ImportError(f"tfhybrid's native ops are not built; {_REBUILD}.") from None
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


def _describe(build: dict[str, Any]) -> str:
    return f"TensorFlow {build['tensorflow']} ({' '.join(build['definitions'])})"
