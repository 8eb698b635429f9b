"""Trained models for serving, without anything of tfhybrid inside."""

from tfhybrid.export.saved_model import saved_model

__all__ = ["saved_model"]
