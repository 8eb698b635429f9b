"""Whether checkpoints are whole: all that `tfhybrid.checkpoint.restore` will check, and more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tfhybrid.checkpoint.manifest import DENSE, MANIFEST, Manifest, folder_of
from tfhybrid.checkpoint.table_file import digest, read_arrays, read_table, sorted_keys
from tfhybrid.cli.console import progress
from tfhybrid.errors import CheckpointError


def verify(folders: list[Path]) -> list[dict[str, Any]]:
    """Checks checkpoints, with a progress bar.

    Args:
        folders: Theirs.

    Returns:
        For each its `folder`, number of `files` and `problems`: `where` (a file or a table) and
        `message`.
    """
    manifests: list[Manifest | CheckpointError] = [_manifest(folder) for folder in folders]
    total = sum(_work(manifest) for manifest in manifests if isinstance(manifest, Manifest))
    reports = []
    with progress("Verifying", total) as advance:
        for folder, manifest in zip(folders, manifests, strict=True):
            if isinstance(manifest, Manifest):
                problems = _problems(folder, manifest, advance)
                files = len(manifest.files) + 1
            else:
                problems, files = [(MANIFEST, str(manifest))], 1
            reports.append(
                {
                    "folder": str(folder),
                    "files": files,
                    "problems": [{"where": where, "message": text} for where, text in problems],
                }
            )
    return reports


def _manifest(folder: Path) -> Manifest | CheckpointError:
    try:
        manifest = Manifest.read(folder)
    except CheckpointError as error:
        return error
    named = folder.name.startswith("step-")
    if named and folder.name != folder_of(folder.parent, manifest.step).name:
        return CheckpointError(f"{folder / MANIFEST} is of another step: {manifest.step}")
    return manifest


def _work(manifest: Manifest) -> int:
    """Returns the bytes that will be read: all files, and then the tables' rows."""
    files = sum(entry.size for entry in manifest.files.values())
    return files + sum(entry.rows * entry.row_bytes for entry in manifest.tables.values())


def _problems(
    folder: Path, manifest: Manifest, advance: Callable[[int], None]
) -> list[tuple[str, str]]:
    """Returns what is wrong, by file or table; a table is looked into if its files are good."""
    problems = []

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
        if damaged.isdisjoint(entry.files):
            check(name, partial(_check_rows, folder, manifest, name, advance))
    return problems


def _check_rows(
    folder: Path, manifest: Manifest, name: str, advance: Callable[[int], None]
) -> None:
    entry = manifest.tables[name]
    blocks = read_table(folder, manifest, name)
    found = 0
    for block in blocks:
        found += digest(block)
        advance(len(block.keys) * entry.row_bytes)
    if found % 2**64 != entry.digest:
        raise CheckpointError(
            f"Table '{name}' in {folder} is not what was saved: wanted rows with digest "
            f"{entry.digest:016x}. Received: {found % 2**64:016x} of {entry.files}"
        )
    sorted_keys(blocks, f"Table '{name}' in {folder}, {entry.files},")
