"""Checks of checkpoints: all checks of `tfhybrid.checkpoint.restore`, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tfhybrid.checkpoint.manifest import DENSE, MANIFEST, Manifest
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.stored import StoredCheckpoint, check_digest, folder_of
from tfhybrid.checkpoint.table_file import StoredRows, digest, read_arrays, read_rows, sorted_keys
from tfhybrid.cli.terminal.console import progress
from tfhybrid.errors import CheckpointError


def verify(folders: list[Location]) -> list[dict[str, Any]]:
    """Checks checkpoints, with a progress bar. Bases of a delta must exist, but are not checked.

    Args:
        folders: The checkpoints' folders.

    Returns:
        A dictionary per checkpoint with `folder`, the number of `files`, and `problems`; each
        problem has `where` (a file or a table) and `message`.
    """
    opened: list[StoredCheckpoint | CheckpointError] = [_open(folder) for folder in folders]
    total = sum(_work(each.manifest) for each in opened if isinstance(each, StoredCheckpoint))
    reports = []
    with progress("Verifying", total) as advance:
        for folder, stored in zip(folders, opened, strict=True):
            if isinstance(stored, StoredCheckpoint):
                problems = _problems(stored, advance)
                files = len(stored.manifest.files) + 1
            else:
                problems, files = [(MANIFEST, str(stored))], 1
            reports.append(
                {
                    "folder": str(folder),
                    "files": files,
                    "problems": [{"where": where, "message": text} for where, text in problems],
                }
            )
    return reports


def _open(folder: Location) -> StoredCheckpoint | CheckpointError:
    try:
        stored = StoredCheckpoint.open(folder)
    except CheckpointError as error:
        return error
    step = stored.manifest.step
    named = folder.name.startswith("step-")
    if named and folder.name != folder_of(folder.parent, step).name:
        return CheckpointError(f"{folder / MANIFEST} is of another step: {step}")
    return stored


def _work(manifest: Manifest) -> int:
    """Returns the number of bytes to read: all files, and then the tables' rows."""
    files = sum(entry.size for entry in manifest.files.values())
    return files + sum(entry.rows * entry.row_bytes for entry in manifest.tables.values())


def _problems(stored: StoredCheckpoint, advance: Callable[[int], None]) -> list[tuple[str, str]]:
    """Returns pairs (file or table, message). Checks a table's rows only if its files are good."""
    problems = []
    folder, manifest = stored.folder, stored.manifest

    def check(where: str, look: Callable[[], object]) -> None:
        try:
            look()
        except CheckpointError as error:
            problems.append((where, str(error)))

    for name in manifest.files:
        check(name, partial(manifest.check_file, folder, name, advance))
    damaged = {name for name, _ in problems}
    if DENSE not in damaged:
        check(DENSE, partial(read_arrays, folder / DENSE))
    for name, entry in manifest.tables.items():
        if damaged.isdisjoint(entry.all_files):
            check(name, partial(_check_rows, stored, name, advance))
    return problems


def _check_rows(stored: StoredCheckpoint, name: str, advance: Callable[[int], None]) -> None:
    folder, entry = stored.folder, stored.manifest.tables[name]
    blocks = stored.rows(name)  # the expected number of rows, with those of its bases
    if not entry.whole:  # the checks below read only its own files
        blocks = [
            read_rows(folder / file, entry.dim, entry.state_shape, history=entry.history)
            for file in entry.files
        ]

    def counted() -> Iterator[StoredRows]:
        for block in blocks:
            yield block
            advance(len(block.keys) * entry.row_bytes)

    check_digest(folder, name, entry, map(digest, counted()))
    sorted_keys(blocks, f"Table '{name}' in {folder}, {entry.files},")
