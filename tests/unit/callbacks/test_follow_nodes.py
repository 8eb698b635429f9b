"""Ranks look at the same steps whether rows are to move."""

from __future__ import annotations

import pytest

from tfhybrid.callbacks import FollowNodes
from tfhybrid.errors import ConfigError


@pytest.mark.parametrize("every_steps", [0, -1])
def test_steps_are_counted_from_one(every_steps: int) -> None:
    with pytest.raises(ConfigError, match=f"Received: {every_steps}"):
        FollowNodes(every_steps)
