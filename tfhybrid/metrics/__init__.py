"""Exact metrics over the samples of all ranks."""

from __future__ import annotations

from tfhybrid.metrics.binary import auc, log_loss
from tfhybrid.metrics.evaluation import evaluate

__all__ = ["auc", "evaluate", "log_loss"]
