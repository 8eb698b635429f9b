"""Lines of Criteo's format."""

from __future__ import annotations


def criteo_line(label="1", number="3", category="68fd1e64", fields=26):
    return "\t".join([label, *[number] * 13, *[category] * fields]) + "\n"
