"""Keras layers that read the shared tables."""

from tfhybrid._deprecated import moved_names
from tfhybrid.layers.calibration_layer import Calibration
from tfhybrid.layers.embedding import Embedding
from tfhybrid.layers.embedding_collection import EmbeddingCollection
from tfhybrid.layers.event_clock import EventClock
from tfhybrid.layers.string_keys import StringKeys

__all__ = ["Calibration", "Embedding", "EmbeddingCollection", "EventClock", "StringKeys"]

__getattr__ = moved_names(TableProxy="tfhybrid.layers.table_proxy.TableProxy")
