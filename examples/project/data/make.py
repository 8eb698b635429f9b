"""Makes small data into the folder of this file: two days of clicks, a day to test on, a stream.

    python data/make.py [--rows 40000]

Each row is an item that was shown to a user, and whether it was clicked. Replace the files by your
own: README.md says how.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

FOLDER = Path(__file__).resolve().parent
USERS, ITEMS, TASTES = 500, 100, 4
DAY = 24 * 60 * 60


def clicks_of(day: int, rows: int) -> pa.Table:
    """Returns the rows of a day, in the order of their time."""
    rng = np.random.default_rng(day)
    time = np.sort(rng.integers(day * DAY, (day + 1) * DAY, rows))
    user = rng.integers(0, USERS, rows)
    item = (ITEMS * rng.random(rows) ** 2).astype(np.int64)  # a few items are shown often
    hour = time // 3600 % 24
    liked = user % TASTES == item % TASTES
    logit = -2.0 + 3.0 * liked + 0.8 * (hour >= 18)
    label = rng.random(rows) < 1 / (1 + np.exp(-logit))
    columns = {"time": time, "user": user, "item": item, "hour": hour}
    return pa.table({**columns, "label": label.astype(np.float32)})


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000, help="rows of a day")
    rows = parser.parse_args().rows
    for day, name in ((1, "train-1"), (2, "train-2"), (3, "test")):
        path = FOLDER / f"{name}.parquet"
        pa.parquet.write_table(clicks_of(day, rows), path, row_group_size=4_096)
        print(path)
    path = FOLDER / "stream.jsonl"
    events = clicks_of(4, rows).to_pylist()
    path.write_text("".join(json.dumps({**row, "medium": "web"}) + "\n" for row in events))
    print(path)


if __name__ == "__main__":
    main()
