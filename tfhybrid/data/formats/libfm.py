"""Format of libfm and libsvm for categorical fields."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from tfhybrid.data.formats.column_settings import check_names, column_of_label, columns_of
from tfhybrid.data.formats.label import Label, labels_of
from tfhybrid.data.formats.text import Layout, Text
from tfhybrid.data.formats.text_columns import TextColumns, arrow_type_of
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.values import ENTRY, Column


@dataclasses.dataclass(frozen=True)
class Libfm(Text):
    r"""Format of lines like `1 451:1 4149:1 5041:1`.

    Files may be compressed (`.gz`, `.bz2`, `.zst`, `.lz4`).

    A label of -1 or 0 is read as 0. All lines have the same number of entries, each `key:1`, as
    libfm and libsvm write categorical fields. Spaces at the end of a line mean nothing.

    Args:
        features: Names of the fields: the i-th entry of a line is the key of the i-th feature.
        label: Kind of the label, which is the first entry of a line. Clicks by default;
            `Label("label", "number")` for numbers, `Label("label", "class")` for classes.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "train.libfm")
    >>> _ = path.write_text("1 451:1 7:1\n-1 12:1 8:1\n")
    >>> Libfm(["user", "item"]).read(path).features["user"]
    array([451,  12])
    """

    features: Sequence[str]
    label: str | Label = "label"

    def __post_init__(self) -> None:
        check_names([column.name for column in self._keys])

    @functools.cached_property
    def _keys(self) -> list[Column]:
        return columns_of(self.features, ("key",), None)

    @functools.cached_property
    @override
    def layout(self) -> Layout:
        (label,) = labels_of(self.label, None)
        types = {
            label.column: arrow_type_of(column_of_label(label)),
            **dict.fromkeys(self.features, pa.string()),
        }
        return Layout(types, delimiter=" ", header=False, quotes=False, trailing_blanks=True)

    @override
    def clicks(self, columns: TextColumns) -> Clicks:
        (label,) = labels_of(self.label, None)
        labels = columns.labels(label, (-1, 0, 1))
        keys = {column.name: columns.keys(column, ENTRY) for column in self._keys}
        is_click = label.kind == "click"
        return Clicks({**keys}, np.maximum(labels, 0) if is_click else labels)
