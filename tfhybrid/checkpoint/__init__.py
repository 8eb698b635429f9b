"""Checkpoints: dense weights, optimizer, tables and the position, all of one step."""

from tfhybrid.checkpoint.manifest import Position, steps
from tfhybrid.checkpoint.restore import restore
from tfhybrid.checkpoint.save import save

__all__ = ["Position", "restore", "save", "steps"]
