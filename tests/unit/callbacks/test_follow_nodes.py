"""Ranks do what they do together after the same steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tfhybrid.callbacks import Checkpoint, CompareReplicas, FollowNodes
from tfhybrid.errors import ConfigError


@pytest.mark.parametrize("every_steps", [0, -1])
def test_steps_are_counted_from_one(every_steps: int) -> None:
    with pytest.raises(ConfigError, match=f"Received: {every_steps}"):
        FollowNodes(every_steps)


@pytest.mark.parametrize("steps", [2, 4])
def test_steps_that_are_executed_together_are_not_torn(tmp_path: Path, steps: int) -> None:
    """A rank without data takes part in one step at a time."""
    for callback in (
        FollowNodes(3),
        CompareReplicas(every_steps=3),
        Checkpoint(tmp_path, save_freq=3),
    ):
        callback.set_model(
            SimpleNamespace(
                weights=[], steps_per_execution=steps, optimizer=SimpleNamespace(iterations=0)
            )
        )
        callback.set_params(None)
        with pytest.raises(ConfigError, match=f"steps_per_execution={steps}. Received: 3"):
            callback.on_train_begin()
