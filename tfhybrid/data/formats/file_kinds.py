"""Kinds of files by their first bytes, to refuse those that a format cannot read."""

from __future__ import annotations

# Bytes with which no text and no run of records begins.
_BEGINNINGS = (
    (b"\x1f\x8b\x08", "a gzip file, whose name must end in .gz"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file, whose name must end in .zst"),
    (b"\x04\x22\x4d\x18", "an LZ4 file, whose name must end in .lz4"),
    *((b"BZh%d1AY&SY" % level, "a bzip2 file, whose name must end in .bz2") for level in range(10)),
    (b"x\x9c", "a zlib file, which TFRecord alone reads, if its name ends in .zlib"),
    (b"\xfd7zXZ\x00", "an xz file; unpack it"),
    (b"PK\x03\x04", "a zip archive, or a file of Excel; unpack it, or save it as text"),
    (b"\xd0\xcf\x11\xe0", "a file of Excel; save it as text"),
    (b"PAR1\x15", "a Parquet file"),
    (b"ARROW1\x00\x00", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"\xff\xfe", "text in UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16; save it as UTF-8"),
)


def kind_of(beginning: bytes) -> str | None:
    r"""Returns the description of a kind of file that is neither text nor records, if it is one.

    Args:
        beginning: First bytes of the file, at least 10 if it has as many.

    Example:

    >>> kind_of(b"PK\x03\x04...")
    'a zip archive, or a file of Excel; unpack it, or save it as text'
    """
    return next((kind for begin, kind in _BEGINNINGS if beginning.startswith(begin)), None)
