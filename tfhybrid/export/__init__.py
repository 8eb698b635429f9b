"""Exports trained models for serving without tfhybrid."""

from tfhybrid.export.saved_model import saved_model

__all__ = ["saved_model"]
