"""Exact metrics over the samples of all ranks, the time of a step's phases, and an endpoint."""

from __future__ import annotations

from tfhybrid.metrics.binary import auc, log_loss
from tfhybrid.metrics.calibration import calibration, normalized_entropy
from tfhybrid.metrics.evaluation import evaluate
from tfhybrid.metrics.grouped import gauc
from tfhybrid.metrics.phases import phase_times
from tfhybrid.metrics.serving import serve

__all__ = [
    "auc",
    "calibration",
    "evaluate",
    "gauc",
    "log_loss",
    "normalized_entropy",
    "phase_times",
    "serve",
]
