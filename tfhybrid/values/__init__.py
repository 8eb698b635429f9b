"""The one place where values enter: columns, and the check of their values.

Readers of files, streams, tables and servers check what they are given by `check`, so that the same
value is good or bad wherever it comes from. The room uses NumPy and Arrow only.
"""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.values.checking import Checked, check
    from tfhybrid.values.column import Column
    from tfhybrid.values.quick_check import ArrowColumn, QuickCheck
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
    "ArrowColumn",
    "Checked",
    "Column",
    "Notation",
    "QuickCheck",
    "Reason",
    "check",
    "check_notation",
    "check_text_lists",
    "check_texts",
    "expected",
]

_SOURCES = {
    "ArrowColumn": "quick_check",
    "ENTRY": "spelling",
    "HEXADECIMAL": "spelling",
    "Checked": "checking",
    "Column": "column",
    "Notation": "spelling",
    "QuickCheck": "quick_check",
    "Reason": "reasons",
    "check": "checking",
    "check_notation": "spelling",
    "check_text_lists": "spelling",
    "check_texts": "spelling",
    "expected": "reasons",
}

__getattr__, __dir__ = lazy(__name__, _SOURCES)
