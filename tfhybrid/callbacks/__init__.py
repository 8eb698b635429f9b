"""Keras callbacks for jobs with many ranks."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy
from tfhybrid.callbacks.broadcast_variables import BroadcastVariables
from tfhybrid.callbacks.checkpoint import Checkpoint
from tfhybrid.callbacks.compare_replicas import CompareReplicas
from tfhybrid.callbacks.evaluate import Evaluate
from tfhybrid.callbacks.follow_nodes import FollowNodes
from tfhybrid.callbacks.hot_restart import HotRestart
from tfhybrid.callbacks.learning_rate_warmup import LearningRateWarmup
from tfhybrid.callbacks.metric_average import MetricAverage
from tfhybrid.callbacks.tensor_board import TensorBoard

if TYPE_CHECKING:
    from tfhybrid.stream.trainer.online import Online
    from tfhybrid.stream.trainer.validate import Validate

__all__ = [
    "BroadcastVariables",
    "Checkpoint",
    "CompareReplicas",
    "Evaluate",
    "FollowNodes",
    "HotRestart",
    "LearningRateWarmup",
    "MetricAverage",
    "Online",
    "TensorBoard",
    "Validate",
]

# Imported at first use: only trainers of a stream need them.
_SOURCES = {
    "Online": "tfhybrid.stream.trainer.online",
    "Validate": "tfhybrid.stream.trainer.validate",
}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
