"""Keras callbacks for jobs with many ranks."""

from tfhybrid.callbacks.broadcast_variables import BroadcastVariables
from tfhybrid.callbacks.checkpoint import Checkpoint
from tfhybrid.callbacks.compare_replicas import CompareReplicas
from tfhybrid.callbacks.evaluate import Evaluate
from tfhybrid.callbacks.follow_nodes import FollowNodes
from tfhybrid.callbacks.hot_restart import HotRestart
from tfhybrid.callbacks.learning_rate_warmup import LearningRateWarmup
from tfhybrid.callbacks.metric_average import MetricAverage
from tfhybrid.callbacks.tensor_board import TensorBoard

__all__ = [
    "BroadcastVariables",
    "Checkpoint",
    "CompareReplicas",
    "Evaluate",
    "FollowNodes",
    "HotRestart",
    "LearningRateWarmup",
    "MetricAverage",
    "TensorBoard",
]
