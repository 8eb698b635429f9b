"""What the exporting and the serving process share: sizes, and keys that both can make."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    """The tables and the requests.

    Args:
        rows: rows of all tables together.
        features: features, each with a table of its own.
        dim: columns of an embedding.
        candidates: samples of a request.
        requests: requests that are timed.
    """

    rows: int = 10_000_000
    features: int = 26
    dim: int = 16
    candidates: int = 500
    requests: int = 1000

    @property
    def rows_each(self) -> int:
        """Rows of one table."""
        return self.rows // self.features

    @property
    def payload_bytes(self) -> int:
        """Bytes of all keys and vectors, once."""
        return self.features * self.rows_each * (8 + 4 * self.dim)


def parse(description: str) -> tuple[Workload, Path]:
    """Returns the workload that the command line asks for, and the folder of the exports."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    for field in dataclasses.fields(Workload):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    arguments = vars(parser.parse_args())
    return Workload(**{k: v for k, v in arguments.items() if k != "folder"}), arguments["folder"]


def names(workload: Workload) -> list[str]:
    """Returns the features."""
    return [f"feature_{number:02d}" for number in range(workload.features)]


def keys(table: int, ids: np.ndarray) -> np.ndarray:
    """Returns the key of each id, different for different ids, spread over all of int64.

    Args:
        table: the table's number.
        ids: int64, 0 and up; those below `rows_each` are in the table.
    """
    mixed = ids.astype(np.uint64) + np.uint64((table + 1) << 40)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def report(side: str, result: dict[str, object]) -> None:
    """Prints a side's result as one JSON line."""
    print(json.dumps({"side": side} | result), flush=True)
