"""The one place where values enter: columns, and the check of their values.

Readers of files, streams, tables and servers check what they are given by `check`, so that the same
value is good or bad wherever it comes from. The room uses NumPy and Arrow only.
"""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.values.checking import Checked, check, fits_as_it_is
    from tfhybrid.values.column import Column
    from tfhybrid.values.reasons import Reason, expected
    from tfhybrid.values.spelling import (
        ENTRY,
        HEXADECIMAL,
        Notation,
        check_notation,
        check_text_lists,
        check_texts,
    )

__all__ = [
    "ENTRY",
    "HEXADECIMAL",
    "Checked",
    "Column",
    "Notation",
    "Reason",
    "check",
    "check_notation",
    "check_text_lists",
    "check_texts",
    "expected",
    "fits_as_it_is",
]

_SOURCES = {
    "ENTRY": "spelling",
    "HEXADECIMAL": "spelling",
    "Checked": "checking",
    "Column": "column",
    "Notation": "spelling",
    "Reason": "reasons",
    "check": "checking",
    "check_notation": "spelling",
    "check_text_lists": "spelling",
    "check_texts": "spelling",
    "expected": "reasons",
    "fits_as_it_is": "checking",
}

__getattr__, __dir__ = lazy(__name__, _SOURCES)
