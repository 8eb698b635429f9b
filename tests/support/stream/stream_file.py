"""The `stream.yaml` of a test: on free ports of this machine, with rows by medium."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.free_ports import two_free_ports


def write_stream(
    folder: Path,
    memory: Path,
    columns: dict[str, str],
    *,
    model: str = "ads",
    media: Sequence[str] = ("video",),
    **settings: Any,
) -> Path:
    """Writes the file of a stream that keeps all that it has in a folder; returns its path.

    Args:
        folder: Of the file, and of what the stream keeps.
        memory: Of its stores.
        columns: Of a row.
        model: That the queues of all media train.
        media: Each has a queue of its name.
        settings: Further fields of `StreamSettings`.
    """
    port = two_free_ports()
    said = {
        "folder": str(folder / "stream"),
        "memory": str(memory),
        "provider": f"127.0.0.1:{port}",
        "sync": f"127.0.0.1:{port + 1}",
        "token_file": str(folder / "token"),
        "columns": columns,
        "routes": {
            "columns": ["medium"],
            "queues": {medium: medium for medium in media},
            "models": {model: list(media)},
        },
    }
    path = folder / "stream.yaml"
    path.write_text(yaml.safe_dump(said | settings))
    return path
