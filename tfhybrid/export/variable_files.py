"""Writer of a SavedModel's variables files, a piece at a time.

`tf.saved_model.save` needs whole variables in memory. So it saves tables of one row, and this
module writes the variables files again with all rows, in slices: `SaveV2` writes some slices at a
time, and `MergeV2Checkpoints` merges its files into one checkpoint. TensorFlow saves variables that
are partitioned over servers in the same way, so everything that restores checkpoints can read them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType

import numpy as np
import tensorflow as tf

_NAMES = "variables/variables"

# `FingerprintDef.checkpoint_hash`, a varint.
_CHECKPOINT_HASH = 5 << 3


class VariableFiles:
    """Context that replaces values and sizes of variables in a SavedModel.

    When the context ends without an error, the SavedModel has the new files. After an error the
    folder must be removed.

    Args:
        folder: Folder of the SavedModel.
        replaced: Names of the variables to replace, as in the SavedModel's checkpoint.
        piece_bytes: Minimum size of the values in a file, in bytes; smaller values wait in memory.

    Example:

    ```python
    with VariableFiles(folder, [name], piece_bytes=64 << 20) as files:
        for first in range(0, rows, len(block)):
            files.add(name, (rows, dim), first, block)
    ```
    """

    def __init__(self, folder: Path, replaced: list[str], piece_bytes: int) -> None:
        self._folder = folder
        self._replaced = frozenset(replaced)
        self._piece_bytes = piece_bytes
        self._pieces: list[str] = []
        self._waiting: list[tuple[str, str, np.ndarray]] = []

    def __enter__(self) -> VariableFiles:
        self._directory = self._folder / "pieces"
        self._directory.mkdir()
        return self

    def add(self, name: str, shape: tuple[int, ...], first: int, values: np.ndarray) -> None:
        """Adds rows of a variable. Every row must be added exactly once, in any order.

        Args:
            name: Name of the variable; one of `replaced`.
            shape: Shape of the whole variable.
            first: Number of the variable's row that `values` starts with.
            values: Rows, `[n, ...]`; the caller must not change them afterwards.

        Raises:
            tf.errors.OpError: A file cannot be written.
        """
        slice_spec = ""
        if len(values) != shape[0]:
            sizes = " ".join(map(str, shape))
            slice_spec = f"{sizes} {first},{len(values)}" + ":-" * (len(shape) - 1)
        self._waiting.append((name, slice_spec, values))
        if sum(values.nbytes for _, _, values in self._waiting) >= self._piece_bytes:
            self._write_waiting()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write_waiting()
            self._keep_others()
            shutil.rmtree(self._folder / "variables")
            (self._folder / "variables").mkdir()
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._pieces,
                destination_prefix=str(self._folder / _NAMES),
                delete_old_dirs=True,
            )
            self._sign()

    def _write_waiting(self) -> None:
        if self._waiting:
            self._write(*map(list, zip(*self._waiting, strict=True)))
            self._waiting.clear()

    def _keep_others(self) -> None:
        """Writes the variables that are not replaced: dense variables and the object graph."""
        saved = str(self._folder / _NAMES)
        dtypes = tf.train.load_checkpoint(saved).get_variable_to_dtype_map()
        names = [name for name in dtypes if name not in self._replaced]
        whole = [""] * len(names)
        kept = tf.raw_ops.RestoreV2(
            prefix=saved,
            tensor_names=names,
            shape_and_slices=whole,
            dtypes=[dtypes[name] for name in names],
        )
        self._write(names, whole, kept)

    def _write(self, names: list[str], slices: list[str], tensors: list[np.ndarray]) -> None:
        prefix = str(self._directory / f"piece-{len(self._pieces)}")
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=prefix, tensor_names=names, shape_and_slices=slices, tensors=tensors
            )
        self._pieces.append(prefix)

    def _sign(self) -> None:
        """Corrects the fingerprint of the checkpoint, as TensorFlow defines it."""
        fingerprint = self._folder / "fingerprint.pb"
        if fingerprint.exists():
            index = tf.io.read_file(str(self._folder / f"{_NAMES}.index"))
            ((checkpoint_hash,),) = tf.fingerprint([index]).numpy().view(np.uint64)
            # If a scalar field occurs twice in a protocol buffer, the last one counts.
            with fingerprint.open("ab") as file:
                file.write(bytes([_CHECKPOINT_HASH]) + _varint(int(checkpoint_hash)))


def _varint(value: int) -> bytes:
    """Returns a number as a varint of protocol buffers: 7 bits per byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
