"""Parsing of keys whose text is not a decimal number."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.data.formats.columns import LocationOf
from tfhybrid.data.formats.format import MISSING_KEY, malformed


class Spelling(NamedTuple):
    """A notation of keys.

    Attributes:
        expected: Description of valid texts, for errors.
        pattern: Regular expression that valid texts match.
        parse: Function that maps an array of valid texts to their keys, an int64 array.
    """

    expected: str
    pattern: str
    parse: Callable[[pa.StringArray], pa.Int64Array]


ENTRY = Spelling(
    "an entry `key:1`",
    r"^-?\d{1,18}:1$",
    lambda texts: pc.utf8_slice_codeunits(texts, 0, -2).cast(pa.int64()),
)
HEXADECIMAL = Spelling(
    "up to 8 hexadecimal digits",
    r"^[0-9A-Fa-f]{1,8}$",
    lambda texts: pc.binary_join_element_wise("0x", texts, "").cast(pa.int64()),
)


def spelled_keys(
    column: pa.ChunkedArray, location_of: LocationOf, spelling: Spelling
) -> np.ndarray:
    """Returns the int64 keys of a column of texts; a missing text becomes `MISSING_KEY`.

    Each distinct text is parsed once.

    Args:
        column: Texts, or nulls for empty fields.
        location_of: Function that describes the location of a row, for errors.
        spelling: Notation of the keys.

    Raises:
        DataError: A text is not a key.
    """
    encoded = column.combine_chunks().dictionary_encode()
    texts = encoded.dictionary
    odd = texts.filter(pc.invert(pc.match_substring_regex(texts, spelling.pattern)))
    if len(odd):
        raise malformed(
            location_of(column.index(odd[0]).as_py()), spelling.expected, odd[0].as_py()
        )
    keys = np.append(spelling.parse(texts), MISSING_KEY)
    return keys[encoded.indices.fill_null(len(texts))]
