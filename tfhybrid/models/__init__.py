"""Click-through models as plain functions that return a functional `keras.Model`."""

from __future__ import annotations

from tfhybrid.models.dcnv2 import dcnv2
from tfhybrid.models.deepfm import deepfm

__all__ = ["dcnv2", "deepfm"]
