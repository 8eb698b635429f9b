"""Outputs that look like probabilities, and outputs that are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensorflow import keras

from tfhybrid.errors import DataError
from tfhybrid.metrics import evaluate

INPUTS = np.linspace(0.0, 1.0, 10, dtype=np.float32)[:, np.newaxis]
LABELS = np.arange(10, dtype=np.float32)[:, np.newaxis] % 2


def ends_in(last: Any) -> keras.Model:
    inputs = keras.Input((1,))
    return keras.Model(inputs, last(inputs))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "tfhybrid.metrics"]


class Subclassed(keras.Model):
    """A model that does not tell its layers' order."""

    def call(self, inputs: Any) -> Any:
        return keras.activations.sigmoid(inputs)


PROBABILITIES: dict[str, Callable[[], keras.Model]] = {
    "dense": lambda: ends_in(keras.layers.Dense(1, activation="sigmoid")),
    "activation": lambda: ends_in(keras.layers.Activation(keras.activations.sigmoid)),
    "subclassed": Subclassed,
    "dict": lambda: ends_in(
        lambda inputs: {"click": keras.layers.Dense(1, "sigmoid", name="click")(inputs)}
    ),
}


@pytest.mark.parametrize("model", PROBABILITIES)
def test_probabilities_that_are_scored_as_logits_are_told_once(model, caplog) -> None:
    built = PROBABILITIES[model]()
    for _ in range(2):
        evaluate(built, [(INPUTS, LABELS)])
    warnings = warnings_in(caplog)
    assert len(warnings) == 1
    assert warnings[0].startswith("All 10 outputs")
    caplog.clear()
    evaluate(PROBABILITIES[model](), [(INPUTS, LABELS)], from_logits=False)
    assert not warnings_in(caplog)


def test_logits_are_not_told(caplog) -> None:
    ones = keras.initializers.Ones()
    evaluate(ends_in(keras.layers.Dense(1, kernel_initializer=ones)), [(INPUTS, LABELS)])
    evaluate(ends_in(keras.layers.Lambda(lambda x: x * 2.0)), [(INPUTS, LABELS)])
    assert not warnings_in(caplog)


def test_one_of_several_outputs_is_scored() -> None:
    inputs = keras.Input((1,))
    outputs = {
        "click": keras.layers.Dense(1, name="click")(inputs),
        "rating": keras.layers.Dense(3, name="rating")(inputs),
    }
    model = keras.Model(inputs, outputs)
    labels = {"click": LABELS, "rating": np.full((10, 3), 4.0, np.float32)}
    with pytest.raises(DataError, match="Labels must be 0 or 1"):
        evaluate(model, [(INPUTS, labels)])
    scores = evaluate(model, [(INPUTS, labels)], outputs=["click"])
    alone = evaluate(keras.Model(inputs, outputs["click"]), [(INPUTS, LABELS)])
    assert scores == {f"click_{name}": score for name, score in alone.items()}
    for wrong in (["like"], "click", []):
        with pytest.raises(DataError, match=r"list of outputs with labels, \['click', 'rating'\]"):
            evaluate(model, [(INPUTS, labels)], outputs=wrong)
