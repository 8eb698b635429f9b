"""Keras layers that read the shared tables."""

from tfhybrid.layers.embedding import Embedding
from tfhybrid.layers.embedding_collection import EmbeddingCollection
from tfhybrid.layers.event_clock import EventClock
from tfhybrid.layers.string_keys import StringKeys
from tfhybrid.layers.table_proxy import TableProxy

__all__ = ["Embedding", "EmbeddingCollection", "EventClock", "StringKeys", "TableProxy"]
