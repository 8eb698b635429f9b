"""The manifest of a checkpoint, and the record of the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfhybrid.checkpoint import best, manifest

MANIFEST = manifest.Manifest(
    format=manifest.FORMAT,
    step=111,
    position={"epoch": 112, "step": 113},
    ranks=114,
    seed=115,
    optimizer="Adam",
    base=manifest.BaseEntry(step=110, crc32c=116, sequence=117),
    versions={"tfhybrid": "0.1.0", "tensorflow": "2.21.0"},
    tables={
        "item": manifest.TableEntry(
            dim=118,
            rows=119,
            version=120,
            initializer=[2, -0.25, 0.5],
            optimizer=[3, 0.0, 0.75],
            state_slots=2,
            expected_rows=121,
            whole=False,
            digest=122,
            files=["item-00000.safetensors", "item-00001.safetensors"],
            decay=0.875,
            history=True,
            event_time=123,
            evicted="item-evicted.safetensors",
            optimizer_start=20,
        ),
        "user": manifest.TableEntry(1, 0, 125, [0], [0], 0, None, True, 126, []),
    },
    files={
        manifest.DENSE: manifest.FileEntry(size=127, crc32c=128),
        "item-00000.safetensors": manifest.FileEntry(129, 130),
        "item-00001.safetensors": manifest.FileEntry(131, 132),
        "item-evicted.safetensors": manifest.FileEntry(133, 134),
    },
    writer="job-7",
    features={"amount": {"column": {"name": "price"}, "layers": ["Log"], "Log": {}}},
)
BEST = best.Best(step=135, monitor="val_auc", value=0.8125)


def write_manifest(folder: Path, _: Path) -> None:
    MANIFEST.write(folder)
    best.write(folder, BEST)


def read_manifest(folder: Path, _: Path) -> Any:
    return manifest.Manifest.read(folder), best.read(folder)
