"""Columns of a unit of text, checked as they are taken."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.data.formats.column_settings import (
    WORDING,
    column_of_label,
    label_values,
    wording_of_label,
)
from tfhybrid.data.formats.format import hashed_strings
from tfhybrid.data.formats.label import Label
from tfhybrid.data.formats.unit_rows import UnitCheck
from tfhybrid.data.formats.unsplit_lists import UnsplitLists
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.values import (
    ENTRY,
    HEXADECIMAL,
    Column,
    Notation,
    Reason,
    check,
    check_notation,
    check_text_lists,
    check_texts,
)


class TextColumns:
    """The columns of a unit, as typed by Arrow, or as texts if Arrow has found a malformed one.

    Args:
        table: Columns with one row per sample.
        unit_check: Collector of the faults.
        texts: Whether all columns are texts, as bytes. Default false.
    """

    def __init__(self, table: pa.Table, unit_check: UnitCheck, *, texts: bool = False) -> None:
        self._table = table
        self._check = unit_check
        self._texts = texts

    def values(self, column: Column, wording: Mapping[Reason, str] | None = None) -> np.ndarray:
        """Returns the values of a column of length 1.

        Args:
            column: Description of the column.
            wording: Descriptions of good values for errors. Defaults to those of the role.
        """
        fields = self._table[column.name]
        strings = hashed_strings if column.role == "string" else None
        of_texts = check_texts if self._texts else check
        checked = of_texts(column, fields, hash_strings=strings)
        wording = WORDING.get(column.role) if wording is None else wording
        values = self._check.add(column, checked, fields, wording=wording)
        assert isinstance(values, np.ndarray)  # the column has length 1
        return values

    def search(self, column: Column, unsplit: UnsplitLists) -> None:
        """Warns once if a column of single strings looks like lists.

        Args:
            column: Description of the column.
            unsplit: Columns that may look so.
        """
        unsplit.search(column.name, self._table[column.name], self._check.path)

    def lists(self, column: Column, separator: str) -> np.ndarray | Ragged:
        """Returns lists, each of which is written in one field.

        Args:
            column: Description of the column of lists.
            separator: Separator of the values of a list.
        """
        fields = self._table[column.name]
        strings = hashed_strings if column.role == "string" else None
        checked = check_text_lists(column, fields, separator, hash_strings=strings)
        items = f"{_ITEMS.get(column.role, column.role)} separated by {separator!r}"
        if column.role == "key":
            items += " (name the column in strings= too if it has strings)"
        wording = {Reason.SPELLING: items, Reason.RANGE: items}
        return self._check.add(column, checked, fields, wording=wording)

    def keys(self, column: Column, notation: Notation) -> np.ndarray:
        """Returns keys that are written in a notation.

        Args:
            column: Description of the column of keys.
            notation: Notation of the keys.
        """
        fields = self._table[column.name]
        texts = fields
        if self._texts:
            decoded = pc.cast(fields, pa.string(), safe=False)
            texts = pc.if_else(pc.equal(decoded, ""), None, decoded)
        checked = check_notation(column, texts, notation)
        wording = _WORDING_OF_NOTATIONS[notation]
        values = self._check.add(column, checked, fields, wording=wording)
        assert isinstance(values, np.ndarray)  # keys of length 1
        return values

    def labels(self, label: Label, clicks: tuple[float, ...] = (0, 1)) -> np.ndarray:
        """Returns the labels of a column: float32, or int64 for classes.

        Args:
            label: Description of the label.
            clicks: Values that clicks without a threshold may have. Default 0 and 1.
        """
        column = column_of_label(label, clicks)
        return label_values(label, self.values(column, wording_of_label(label, column)))


_ITEMS = {
    "key": "whole numbers",
    "number": "numbers",
    "string": "strings in UTF-8",
    "time": "times in ISO 8601",
}
_WORDING_OF_NOTATIONS = {
    notation: dict.fromkeys(Reason, notation.expected) for notation in (ENTRY, HEXADECIMAL)
}


def arrow_type_of(column: Column) -> pa.DataType:
    """Returns the Arrow type as which text formats read a column; lists are texts."""
    if column.length != 1 or column.named or column.role in ("string", "time"):
        return pa.string()
    return pa.from_numpy_dtype(np.dtype(column.dtype))
