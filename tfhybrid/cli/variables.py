"""The dense arrays of a checkpoint by the names that its model gave to its variables."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from tfhybrid.checkpoint.manifest import DENSE
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import read_arrays, read_names


@dataclasses.dataclass(frozen=True)
class Variables:
    """Dense arrays by number, such as `weights/0003`, and what Keras called them.

    Args:
        arrays: By number.
        names: Of some or all of them; a checkpoint of an older version has none.
    """

    arrays: dict[str, np.ndarray]
    names: dict[str, str]

    @classmethod
    def of(cls, stored: StoredCheckpoint) -> Variables:
        """Reads those of a checkpoint.

        Raises:
            CheckpointError: The file is damaged.
        """
        path = stored.folder / DENSE
        arrays, names = read_arrays(path), read_names(path)
        # Only what tells one array from the others of its group is a name.
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
        """Returns what to call an array: group and name, or its number.

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
    """Returns for arrays of `a` those of `b` that are the same variable, by number.

    A group whose arrays have the same shapes in both is of the same model, and numbers count: Keras
    makes up other names when a model is built twice in a process. Otherwise variables of one name
    belong together, wherever they stand, because a layer may have come in between.
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
