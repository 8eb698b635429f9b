"""Training data: file formats, batches from memory and from files, streams, a generated log.

A name is imported when it is first used, because the command line reads formats without TensorFlow.
"""

from typing import TYPE_CHECKING

from tfhybrid._deprecated import moved_names
from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.data.announced import announce
    from tfhybrid.data.batches import Batches
    from tfhybrid.data.directory_stream import END_MARKER, DirectoryStream
    from tfhybrid.data.file_batches import FileBatches
    from tfhybrid.data.formats.criteo import Criteo
    from tfhybrid.data.formats.csv import Csv
    from tfhybrid.data.formats.format import MISSING_KEY, Format, Unit
    from tfhybrid.data.formats.label import Label
    from tfhybrid.data.formats.libfm import Libfm
    from tfhybrid.data.formats.parquet import Parquet
    from tfhybrid.data.formats.tfrecord import TFRecord
    from tfhybrid.data.from_nodes import from_nodes
    from tfhybrid.data.generator import BestAuc, ClickLog, IdSpace
    from tfhybrid.data.node_batches import NodeBatches
    from tfhybrid.data.position import Position, StreamPosition
    from tfhybrid.data.samples.clicks import Clicks
    from tfhybrid.data.samples.ragged import Ragged
    from tfhybrid.data.samples.sharding import Shard
    from tfhybrid.data.samples.strings import string_keys
    from tfhybrid.values.column import Column

__all__ = [
    "END_MARKER",
    "MISSING_KEY",
    "Batches",
    "BestAuc",
    "ClickLog",
    "Clicks",
    "Column",
    "Criteo",
    "Csv",
    "DirectoryStream",
    "FileBatches",
    "Format",
    "IdSpace",
    "Label",
    "Libfm",
    "NodeBatches",
    "Parquet",
    "Position",
    "Ragged",
    "Shard",
    "StreamPosition",
    "TFRecord",
    "Unit",
    "announce",
    "from_nodes",
    "string_keys",
]

_SOURCES = {
    "END_MARKER": "directory_stream",
    "MISSING_KEY": "formats.format",
    "Batches": "batches",
    "BestAuc": "generator",
    "ClickLog": "generator",
    "Clicks": "samples.clicks",
    "Column": "tfhybrid.values.column",
    "Criteo": "formats.criteo",
    "Csv": "formats.csv",
    "DirectoryStream": "directory_stream",
    "FileBatches": "file_batches",
    "Format": "formats.format",
    "IdSpace": "generator",
    "Label": "formats.label",
    "Libfm": "formats.libfm",
    "NodeBatches": "node_batches",
    "Parquet": "formats.parquet",
    "Position": "position",
    "Ragged": "samples.ragged",
    "Shard": "samples.sharding",
    "StreamPosition": "position",
    "TFRecord": "formats.tfrecord",
    "Unit": "formats.format",
    "announce": "announced",
    "from_nodes": "from_nodes",
    "string_keys": "samples.strings",
}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
    __getattr__ = moved_names(
        __getattr__,
        data_directory="tfhybrid.data.archives.data_directory",
        open_criteo_head="tfhybrid.data.archives.open_criteo_head",
        open_frappe="tfhybrid.data.archives.open_frappe",
        open_movielens_stream="tfhybrid.data.archives.open_movielens_stream",
        unpacked="tfhybrid.data.archives.unpacked",
    )
