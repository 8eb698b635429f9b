"""Warning about columns of strings that look like lists which nobody has split."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.settings import launcher_ranks

_logger = logging.getLogger("tfhybrid.data")

_SAMPLE = 1000  # strings of a column that are looked at, which takes some microseconds
_LEAST_SHARE = 0.25


class UnsplitLists:
    """Columns of single strings, each of which is searched once for texts that look like lists.

    The first strings that are read look like lists if a quarter of those that are not empty has the
    separator, and not all equally often: keys made of two parts have it once in each.

    Args:
        names: Names of the columns.
        separator: Separator of lists.
        advice: Advice how to read the lists of a column, with `{name}` for its name.
    """

    def __init__(self, names: Collection[str], separator: str, advice: str) -> None:
        self._names = names
        self._separator = separator
        self._advice = advice
        self._searched: dict[str, object] = {}

    def search(self, name: str, texts: pa.ChunkedArray, path: Path) -> None:
        """Warns if a column looks like lists, on the first call for the column and on rank 0 alone.

        Any thread may call it.

        Args:
            name: Name of a column; others than `names` are not searched.
            texts: Strings, or bytes, of the column.
            path: Path of the file, for the warning.
        """
        if name not in self._names or name in self._searched or not len(texts):
            return
        token = object()
        if self._searched.setdefault(name, token) is not token:  # setdefault is atomic
            return
        example = list_among(texts.slice(0, _SAMPLE), self._separator)
        if example is not None and launcher_ranks()[0] == 0:
            _logger.warning(
                "Column %r of %s has strings with %r, such as %r, and each becomes one key. If "
                "they are lists, %s. If not, write Column(%r, 'string') in place of the name.",
                *(name, path, self._separator, example, self._advice.format(name=name), name),
            )


def list_among(texts: pa.ChunkedArray, separator: str) -> str | None:
    """Returns a text that looks like a list if the texts as a whole do, else `None`.

    Args:
        texts: Strings or bytes.
        separator: Separator of lists.

    Example:

    >>> list_among(pa.chunked_array([["Drama", "Comedy|Drama", ""]]), "|")
    'Comedy|Drama'
    >>> list_among(pa.chunked_array([["tv|1", "tv|2"]]), "|")
    """
    filled = texts.cast(pa.large_binary()).drop_null()
    filled = filled.filter(pc.greater(pc.binary_length(filled), 0))
    counts = pc.count_substring(filled, separator)
    with_separator = filled.filter(pc.greater(counts, 0))
    alike = len(counts.unique()) < 2
    if alike or len(with_separator) < _LEAST_SHARE * len(filled):
        return None
    return with_separator[0].as_py().decode(errors="replace")
