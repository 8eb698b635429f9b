"""Format of Criteo's click logs."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pyarrow as pa
from typing_extensions import override

from tfhybrid.data.formats.column_settings import column_of_label
from tfhybrid.data.formats.format import MISSING_KEY
from tfhybrid.data.formats.label import Label, labels_of
from tfhybrid.data.formats.text import Layout, Text
from tfhybrid.data.formats.text_columns import TextColumns, arrow_type_of
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.values import HEXADECIMAL, Column

NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))

_MISSING = -(2**63)  # stands for an empty number until it is converted
_COUNTS = [Column(name, "number", dtype="int64", missing=_MISSING) for name in NUMBERS]
_KEYS = [Column(name, missing=MISSING_KEY) for name in CATEGORIES]


@dataclasses.dataclass(frozen=True)
class Criteo(Text):
    r"""Format of Criteo's training files: tab-separated label, I1 to I13, C1 to C26.

    Files may be compressed (`.gz`, `.bz2`, `.zst`, `.lz4`).

    Categories (C1 to C26) are hexadecimal numbers of up to 8 digits. Their keys are the values of
    these numbers, so there are no collisions; the key of an empty field is `MISSING_KEY`. A number
    x (I1 to I13) becomes the dense float log(1 + max(x, 0)), or 0 if the field is empty. With
    `bucketize` it becomes a feature instead, whose key is the bucket of max(x, 0): the number
    itself up to 2, and 2 + floor(log(x)^2) above; the key of an empty field is `MISSING_KEY`.

    Args:
        bucketize: Whether the numbers become features rather than dense columns. Default false.
        label: Kind of the label, which is the first column. Clicks by default;
            `Label("label", "number")` for numbers, `Label("label", "class")` for classes.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "day_0.tsv")
    >>> _ = path.write_text("\t".join(["1", *["3"] * 13, *["68fd1e64"] * 26]))
    >>> Criteo().read(path).features["C1"]
    array([1761418852])
    """

    bucketize: bool = False
    label: str | Label = "label"

    @functools.cached_property
    @override
    def layout(self) -> Layout:
        (label,) = labels_of(self.label, None)
        types = {
            label.column: arrow_type_of(column_of_label(label)),
            **dict.fromkeys(NUMBERS, pa.int64()),
            **dict.fromkeys(CATEGORIES, pa.string()),
        }
        return Layout(types, delimiter="\t", header=False, quotes=False, empty_is_null=True)

    @override
    def clicks(self, columns: TextColumns) -> Clicks:
        (label,) = labels_of(self.label, None)
        labels = columns.labels(label)
        keys = {column.name: columns.keys(column, HEXADECIMAL) for column in _KEYS}
        numbers = {column.name: columns.values(column) for column in _COUNTS}
        if self.bucketize:
            buckets = {name: _buckets(column) for name, column in numbers.items()}
            return Clicks({**buckets, **keys}, labels)
        return Clicks({**keys}, labels, {name: _logarithms(each) for name, each in numbers.items()})


def _logarithms(numbers: np.ndarray) -> np.ndarray:
    return np.log1p(np.maximum(numbers, 0)).astype(np.float32)


def _buckets(numbers: np.ndarray) -> np.ndarray:
    counts = np.maximum(numbers, 0).astype(np.float64)
    buckets = np.where(counts > 2, 2 + np.floor(np.log(np.maximum(counts, 1)) ** 2), counts)
    return np.where(numbers == _MISSING, MISSING_KEY, buckets).astype(np.int64)
