from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

from tfhybrid.checkpoint import random_state
from tfhybrid.errors import CheckpointError


def draw() -> list[float]:
    generator = tf.random.get_global_generator()
    return [
        random.random(),
        random.gauss(0, 1),  # keeps its second number back
        *np.random.random(3),
        np.random.standard_normal(),  # so does NumPy's
        *generator.normal([3]).numpy(),
    ]


def test_generators_go_on_where_they_were():
    draw()
    arrays = {f"rank/0/{name}": array for name, array in random_state.gather().items()}
    expected = [draw() for _ in range(400)]  # NumPy's state is used up and made anew
    random_state.RandomState.of(arrays, "rank/0/").assign()
    assert [draw() for _ in range(400)] == expected


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("random/numpy"),
        lambda arrays: arrays.update({"random/python": np.zeros(3)}),
        *(
            lambda arrays, name=name, value=value: arrays[name].fill(value)
            for name in ("random/python", "random/numpy")
            for value in (np.nan, np.inf, -1.0, 1e300)
        ),
        lambda arrays: arrays.update({"random/tensorflow": np.zeros(0, np.int64)}),
    ],
)
def test_what_is_no_state_is_refused(damage):
    arrays = random_state.gather()
    damage(arrays)
    with pytest.raises(CheckpointError, match="random generators is damaged"):
        random_state.RandomState.of(arrays)
