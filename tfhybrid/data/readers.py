"""Readers of click logs: CSV with a header, libfm, and Criteo's tab separated format."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tfhybrid.data.clicks import Clicks
from tfhybrid.data.text import TextFormat, fail_at, read_labels, read_text

MISSING_KEY = -1
"""The key that `read_criteo` gives an empty field; no field that is there can have it."""

CRITEO_NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CRITEO_CATEGORIES = tuple(f"C{i}" for i in range(1, 27))


class _KeyText(NamedTuple):
    """How a key is spelled."""

    wanted: str
    pattern: str
    parse: Callable[[pa.StringArray], pa.Int64Array]


_ENTRY = _KeyText(
    "an entry `key:1`",
    r"^-?\d{1,18}:1$",
    lambda texts: pa.compute.utf8_slice_codeunits(texts, 0, -2).cast(pa.int64()),
)
_HEXADECIMAL = _KeyText(
    "up to 8 hexadecimal digits",
    r"^[0-9A-Fa-f]{1,8}$",
    lambda texts: pa.compute.binary_join_element_wise("0x", texts, "").cast(pa.int64()),
)


def read_csv(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str],
    label: str = "label",
    positive: float | None = None,
) -> Clicks:
    r"""Reads a CSV file whose header names the columns and whose features are integers.

    Args:
        path: The file, perhaps compressed (`.gz`, `.bz2`).
        features: Columns to read as keys. Other columns are passed over.
        label: Column of the label.
        positive: The label is 1 where the column is at least this. Defaults to none: the column
            must hold 0 and 1.

    Returns:
        The samples in the order of the file.

    Raises:
        DataError: A column is missing or a field is malformed.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,movie,rating\n7,50,4.5\n8,50,2.0\n")
    >>> read_csv(path, features=["user", "movie"], label="rating", positive=4.0).label
    array([1., 0.], dtype=float32)
    """
    path = Path(path)
    text_format = TextFormat({label: pa.float32(), **dict.fromkeys(features, pa.int64())})
    table = read_text(path, text_format)
    if positive is None:
        labels = read_labels(path, text_format, table[label], (0, 1))
    else:
        labels = (table[label].to_numpy() >= positive).astype(np.float32)
    return Clicks({name: table[name].to_numpy() for name in features}, labels)


def read_libfm(path: str | os.PathLike[str], *, features: Sequence[str]) -> Clicks:
    """Reads a libfm file of categorical fields: lines like `1 451:1 4149:1 5041:1`.

    Args:
        path: The file, perhaps compressed (`.gz`, `.bz2`).
        features: Names for the fields: the i-th entry of a line is the key of the i-th feature.

    Returns:
        The samples in the order of the file; a label of -1 or 0 is read as 0.

    Raises:
        DataError: A line has another number of entries, or an entry is not `key:1`.
    """
    path = Path(path)
    text_format = TextFormat(
        {"label": pa.float32(), **dict.fromkeys(features, pa.string())},
        " ",
        header=False,
        quotes=False,
    )
    table = read_text(path, text_format)
    labels = read_labels(path, text_format, table["label"], (-1, 0, 1))
    keys = {name: _keys(path, text_format, table[name], _ENTRY) for name in features}
    return Clicks(keys, np.maximum(labels, 0))


def read_criteo(path: str | os.PathLike[str], *, bucketize: bool = False) -> Clicks:
    """Reads the training format of Criteo's click logs: label, I1 to I13, C1 to C26.

    Categories are hexadecimal numbers of up to 8 digits and become the int64 of that value, with
    no collisions; an empty field becomes `MISSING_KEY`. A number x becomes the dense float
    log(1 + max(x, 0)), an empty one 0; or, as a feature of its own, a bucket that tells an empty
    field apart: x itself up to 2, above that 2 + floor(log(x)^2).

    Args:
        path: The file, perhaps compressed (`.gz`, `.bz2`).
        bucketize: Whether the numbers become features rather than dense columns.

    Returns:
        The samples in the order of the file.

    Raises:
        DataError: A line has another number of fields, or a field is malformed.
    """
    path = Path(path)
    types = {
        "label": pa.float32(),
        **dict.fromkeys(CRITEO_NUMBERS, pa.int64()),
        **dict.fromkeys(CRITEO_CATEGORIES, pa.string()),
    }
    text_format = TextFormat(types, "\t", header=False, quotes=False, empty_is_null=True)
    table = read_text(path, text_format)
    labels = read_labels(path, text_format, table["label"], (0, 1))
    keys = {name: _keys(path, text_format, table[name], _HEXADECIMAL) for name in CRITEO_CATEGORIES}
    numbers = {name: table[name].to_numpy() for name in CRITEO_NUMBERS}
    if bucketize:
        buckets = {name: _buckets(column) for name, column in numbers.items()}
        return Clicks({**buckets, **keys}, labels)
    return Clicks(keys, labels, {name: _logarithms(column) for name, column in numbers.items()})


def _keys(
    path: Path, text_format: TextFormat, column: pa.ChunkedArray, key_text: _KeyText
) -> np.ndarray:
    """Returns the keys that a column of text spells; each distinct text is looked at once."""
    encoded = column.combine_chunks().dictionary_encode()
    texts = encoded.dictionary
    odd = texts.filter(pa.compute.invert(pa.compute.match_substring_regex(texts, key_text.pattern)))
    if len(odd):
        row = column.index(odd[0]).as_py()
        raise fail_at(path, text_format.line(row), key_text.wanted, odd[0].as_py())
    keys = np.append(key_text.parse(texts), MISSING_KEY)
    return keys[encoded.indices.fill_null(len(texts))]


def _logarithms(numbers: np.ndarray) -> np.ndarray:
    return np.log1p(np.maximum(np.nan_to_num(numbers), 0)).astype(np.float32)


def _buckets(numbers: np.ndarray) -> np.ndarray:
    counts = np.maximum(np.nan_to_num(numbers), 0)
    buckets = np.where(counts > 2, 2 + np.floor(np.log(np.maximum(counts, 1)) ** 2), counts)
    return np.where(np.isnan(numbers), MISSING_KEY, buckets).astype(np.int64)
