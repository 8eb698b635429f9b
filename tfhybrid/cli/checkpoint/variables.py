"""The dense arrays of a checkpoint, with the names of the model's variables."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from tfhybrid.checkpoint.manifest import DENSE
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import read_arrays, read_names


@dataclasses.dataclass(frozen=True)
class Variables:
    """Dense arrays by number, such as `weights/0003`, and Keras's names for them.

    Args:
        arrays: Arrays by number.
        names: Names of arrays by number. Arrays without a unique name, and all arrays of older
            checkpoints, have none.
    """

    arrays: dict[str, np.ndarray]
    names: dict[str, str]

    @classmethod
    def of(cls, stored: StoredCheckpoint) -> Variables:
        """Reads the dense arrays of a checkpoint.

        Args:
            stored: The checkpoint.

        Returns:
            The arrays and their names.

        Raises:
            CheckpointError: The file is damaged.
        """
        path = stored.folder / DENSE
        arrays, names = read_arrays(path), read_names(path)
        # A name must be unique in its group.
        counts = collections.Counter((_group(number), name) for number, name in names.items())
        return cls(
            arrays,
            {
                number: name
                for number, name in names.items()
                if number in arrays and counts[_group(number), name] == 1
            },
        )

    def called(self, number: str) -> str:
        """Returns an array's display name: group and name, or its number.

        Args:
            number: Number of the array, such as `weights/0003`.

        Example:

        >>> import numpy as np
        >>> arrays = {"weights/0003": np.zeros(2), "weights/0004": np.zeros(2)}
        >>> variables = Variables(arrays, {"weights/0003": "tower/kernel"})
        >>> variables.called("weights/0003"), variables.called("weights/0004")
        ('weights/tower/kernel', 'weights/0004')
        """
        name = self.names.get(number)
        return number if name is None else f"{_group(number)}/{name}"


def matched(a: Variables, b: Variables) -> dict[str, str]:
    """Matches the variables of two checkpoints: number in `a` -> number in `b`.

    If a group's arrays have the same shapes in both, they come from the same model and are matched
    by number, because Keras generates other names when a model is built twice in a process.
    Otherwise variables are matched by name, because a layer may have been added.

    Args:
        a: Variables of the older checkpoint.
        b: Variables of the newer checkpoint.

    Returns:
        The numbers in `b` by the numbers in `a`; variables without a match are left out.
    """
    pairs: dict[str, str] = {}
    for group in {*map(_group, a.arrays)}:
        ours, theirs = _of_group(a, group), _of_group(b, group)
        if _shapes(a, ours) == _shapes(b, theirs):
            pairs |= zip(ours, theirs, strict=True)
            continue
        by_name = {b.called(number): number for number in theirs}
        named = {n: by_name[a.called(n)] for n in ours if a.called(n) in by_name}
        unnamed = {n for n in ours if n not in named and n not in a.names}
        pairs |= named | {n: n for n in unnamed if n in theirs and n not in named.values()}
    return pairs


def _of_group(variables: Variables, group: str) -> list[str]:
    return sorted(number for number in variables.arrays if _group(number) == group)


def _shapes(variables: Variables, numbers: list[str]) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [(variables.arrays[n].shape, variables.arrays[n].dtype) for n in numbers]


def _group(number: str) -> str:
    return number.rpartition("/")[0]
