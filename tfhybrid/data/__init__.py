"""Training data: readers, batches of a table in memory, streams of files, a generated click log."""

from tfhybrid.data.archives import (
    data_directory,
    open_criteo_head,
    open_frappe,
    open_movielens_stream,
    unpacked,
)
from tfhybrid.data.batches import Batches, Position
from tfhybrid.data.clicks import Clicks
from tfhybrid.data.generator import BestAuc, ClickLog, IdSpace
from tfhybrid.data.readers import MISSING_KEY, read_criteo, read_csv, read_libfm
from tfhybrid.data.sharding import Shard
from tfhybrid.data.stream import END_MARKER, DirectoryStream, StreamPosition
from tfhybrid.data.string_keys import string_keys

__all__ = [
    "END_MARKER",
    "MISSING_KEY",
    "Batches",
    "BestAuc",
    "ClickLog",
    "Clicks",
    "DirectoryStream",
    "IdSpace",
    "Position",
    "Shard",
    "StreamPosition",
    "data_directory",
    "open_criteo_head",
    "open_frappe",
    "open_movielens_stream",
    "read_criteo",
    "read_csv",
    "read_libfm",
    "string_keys",
    "unpacked",
]
