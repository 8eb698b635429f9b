"""Ends processes in the midst of generated data: exiting.py SECONDS COUNT KIND...

Each child of this process reads some data of a kind and ends as Python does, with finalization. A
line per kind says which exit statuses the children had; `hung` are those that did not end.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfhybrid
from tfhybrid._ending import end_generators
from tfhybrid.data import (
    Clicks,
    Criteo,
    Csv,
    DirectoryStream,
    FileBatches,
    Format,
    Libfm,
    Parquet,
    TFRecord,
    Unit,
    announce,
)
from tfhybrid.data.samples.generated import generated

# Each reads a file without bad rows; with `bad-` before its name, also one whose last row is bad.
_READERS = {
    "csv": Csv(["user"]),
    "parquet": Parquet(["user"]),
    "tfrecord": TFRecord(["user"]),
    "libfm": Libfm(["user"]),
    "criteo": Criteo(),
}
_ROWS = 5000


class Slow(Format):
    """Files whose reading takes a while."""

    def units(self, path: Path) -> list[Unit]:
        return [Unit(path, first, 0, first, 16) for first in range(0, 1600, 16)]

    def read_unit(self, unit: Unit) -> Clicks:
        time.sleep(0.05)
        return Clicks({"user": np.arange(unit.rows)}, np.zeros(unit.rows, np.float32))


def write_files(folder: Path) -> None:
    """Writes the files of each reader."""
    from tests.support.ways_in.sample_files import write_records  # not in the process that forks

    (folder / "slow").touch()
    for name in ("", "bad-"):
        users = [*map(str, range(_ROWS)), "x" if name else "7"]
        rows = [(str(row % 2), user) for row, user in enumerate(users)]
        csv = "\n".join(["label,user", *map(",".join, rows), ""])
        (folder / f"{name}csv").write_text(csv)
        (folder / f"{name}libfm").write_text("".join(f"{y} {user}:1\n" for y, user in rows))
        others = "\t".join(["68fd1e64"] * 25)
        lines = ["\t".join([y, *["3"] * 13, user, others]) for y, user in rows]
        (folder / f"{name}criteo").write_text("\n".join(lines))
        write_parquet(folder / f"{name}parquet", 7.5 if name else 7.0)
        counts = [*[1] * 2000, 0 if name else 1]
        records = [{"label": float(row % 2), "user": [row] * n} for row, n in enumerate(counts)]
        write_records(folder / f"{name}tfrecord", records)
    (folder / "stream").mkdir()
    (folder / "stream" / "a.csv").write_text((folder / "csv").read_text())


def write_parquet(path: Path, last: float) -> None:
    """Writes keys as floats, of which the last one is given."""
    import pyarrow as pa
    import pyarrow.parquet

    users = np.append(np.arange(_ROWS, dtype=np.float64), last)
    table = pa.table({"label": np.arange(_ROWS + 1) % 2, "user": users})
    pyarrow.parquet.write_table(table, path)


def counted(pause: float) -> Iterator[int]:
    """Yields numbers, each after a pause within Python."""
    number = 0
    while True:
        time.sleep(pause)
        yield number
        number += 1


def computed(number: tf.Tensor) -> tf.Tensor:
    """Returns the number, after half a second of one processor without a call of Python."""
    matrix = tf.random.stateless_uniform([1500, 1500], [1, 2])
    for _ in range(6):
        matrix = tf.linalg.matmul(matrix, matrix) / 1000
    return number + tf.cast(0 * tf.reduce_sum(matrix), number.dtype)


def record(number: np.ndarray) -> np.ndarray:
    """Keeps a number, and returns it."""
    recorded.append(int(number))
    return number


def dataset_of(kind: str, folder: Path) -> tf.data.Dataset:
    """Returns the data of a kind."""
    if (reader := kind.removeprefix("bad-")) in _READERS:
        # The first file is read here already, the second one on a thread of TensorFlow.
        paths = [folder / name for name in dict.fromkeys([reader, kind])]
        return FileBatches(_READERS[reader], paths, 64, seed=1).dataset(epochs=None)
    match kind:
        case "slow":
            return FileBatches(Slow(), [folder / "slow"], 4, seed=1).dataset(epochs=None)
        case "stream":
            read = Csv(["user"]).read
            stream = DirectoryStream(folder / "stream", read, batch_size=8, poll_seconds=0.05)
            return stream.dataset()
        case "announced":
            tfhybrid.init()
            layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="user")
            layer.build((None, 1))
            batches = dataset_of("slow", folder)
            return announce(batches, batches=4, layers={"user": layer}).prefetch(2)
    signature = tf.TensorSpec([], tf.int64)
    if kind == "computed":
        numbers = generated(lambda: counted(0), signature).map(computed)
        return numbers.map(lambda each: tf.numpy_function(record, [each], tf.int64)).prefetch(100)
    return generated(lambda: counted(0.05), signature).prefetch(tf.data.AUTOTUNE)


def end(kind: str, way: str, folder: Path) -> None:
    """Reads a few elements, and ends in one of the ways in which a script does."""
    global alive
    data = dataset_of(kind, folder)
    if way == "alive":
        alive = iter(data)  # a global, which Python frees while it finalizes
        next(alive)
        return
    if way == "late":
        elements = iter(data)
        for _ in range(5):
            next(elements)
        end_generators()
        before = len(recorded)
        list(elements)  # those that are under way
        sys.exit(len(recorded) - before)
    for number, _ in enumerate(data):
        if number < 5 or kind.startswith("bad-"):
            continue
        match way:
            case "midst":
                break
            case "exit":
                sys.exit(3)
            case "raise":
                raise ValueError(f"after element {number}")
            case "interrupt":
                # A shell's job in the background inherits that the signal is ignored.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.kill(os.getpid(), signal.SIGINT)


def judge(children: dict[int, str], seconds: float) -> dict[str, Counter[str]]:
    """Returns how the children of each kind have ended, and kills those that do not end."""
    ends: dict[str, Counter[str]] = {}
    deadline = time.monotonic() + seconds
    while children:
        for pid, name in list(children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() > deadline
            if not ended and not late:
                continue
            if not ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            how = str(os.waitstatus_to_exitcode(status)) if ended else "hung"
            ends.setdefault(name, Counter())[how] += 1
            del children[pid]
        time.sleep(0.02)
    return ends


alive = None
recorded: list[int] = []
seconds, count, names = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
folder = Path(tempfile.mkdtemp())
if os.fork() == 0:  # in a child: TensorFlow's threads do not survive a fork
    write_files(folder)
    os._exit(0)
os.wait()
gc.freeze()  # at its end, no child looks through the objects of TensorFlow
every: dict[str, Counter[str]] = {}
for name in names:
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            if "SHOW" not in os.environ:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            end(*name.split(":"), folder)
            sys.exit()
        for kind, ends in judge({pid: name}, seconds).items():
            every.setdefault(kind, Counter()).update(ends)
sys.stdout.write(json.dumps(every) + "\n")
sys.stdout.flush()
os._exit(0)
