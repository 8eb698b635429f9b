"""Exact metrics over the samples of all ranks, and where the time of their steps goes."""

from __future__ import annotations

from tfhybrid.metrics.binary import auc, log_loss
from tfhybrid.metrics.evaluation import evaluate
from tfhybrid.metrics.phases import phase_times

__all__ = ["auc", "evaluate", "log_loss", "phase_times"]
