"""Calibration of a trained model's logits."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.layers.calibration_curves import (
    ScoredClasses,
    isotonic_curve,
    platt_line,
    scored_classes,
)
from tfhybrid.metrics.binary import sigmoid
from tfhybrid.metrics.predicted_samples import samples_of_rank

_log = logging.getLogger("tfhybrid.layers")

# A probability of 0 or 1 has no finite logit.
_SMALLEST = float(np.finfo(np.float32).eps)


@keras.utils.register_keras_serializable(package="tfhybrid")
class Calibration(keras.layers.Layer):
    """Logits of the probabilities that were observed at a model's logits.

    `Calibration.fitted` makes one from held-out samples. Put it behind a trained model: it has no
    weights, and is exported with the model.

    Args:
        slope: Factor of the logits. Default 1.
        intercept: Number that is added to their product. Default 0.
        curve: Probabilities of label 1 at some of these logits: ascending logits, and as many
            probabilities. Between them it is linear, beyond them constant. Probabilities are kept
            1.2e-7 away from 0 and 1, which have no finite logit. Default: no curve.
        negative_rate: Fraction of the negatives that were kept when the samples were drawn, above 0
            and at most 1. Its logarithm is added at the end, so that the result holds for all
            negatives. Default 1.
        **kwargs: Arguments of `keras.layers.Layer`. The default dtype is float32.

    Raises:
        ConfigError: A number is not finite or out of range, or the curve does not ascend.

    Input shape: Logits of any shape.

    Output shape: The same.

    Example:

    ```python
    layer = tfhybrid.layers.Calibration.fitted(model, held_out, "isotonic")
    calibrated = keras.Model(model.input, layer(model.output))
    tfhybrid.export.saved_model(calibrated, "exported/click_model")
    ```

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> layer = tfhybrid.layers.Calibration(negative_rate=0.1)
    >>> odds = tf.exp(layer(tf.constant([0.0])))  # 1 with a tenth of the negatives
    >>> round(float(odds[0]), 6)
    0.1
    """

    def __init__(
        self,
        slope: float = 1.0,
        intercept: float = 0.0,
        *,
        curve: Sequence[npt.ArrayLike] | None = None,
        negative_rate: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)
        if not (math.isfinite(slope) and math.isfinite(intercept)):
            raise ConfigError(
                f"slope and intercept must be finite. Received: {slope!r}, {intercept!r}"
            )
        _check_rate(negative_rate)
        self._slope, self._intercept = float(slope), float(intercept)
        self._negative_rate = float(negative_rate)
        if curve is not None and not _is_curve(curve):
            raise ConfigError(
                "curve must be ascending logits, and as many probabilities within [0, 1] that do "
                f"not descend. Received: {curve!r}"
            )
        self._curve = None if curve is None else np.array(curve, np.float64)

    @classmethod
    @distributed.call("layers.Calibration.fitted")
    def fitted(
        cls,
        model: keras.Model,
        dataset: Iterable[Any],
        method: Literal["isotonic", "platt"],
        *,
        negative_rate: float = 1.0,
    ) -> Self:
        """Fits a calibration to held-out samples of all ranks together.

        Every rank must call it with its own samples, of which there may be none. All ranks get the
        same calibration, with the same bits for every number of ranks.

        Args:
            model: Model that returns one logit per sample, `[batch, 1]` or `[batch]`.
            dataset: Batches of this rank that the model was not trained on: `(features, labels)` or
                `(features, labels, weights)`.
            method: `"platt"`: a slope and an intercept, for few samples. `"isotonic"`: any
                ascending curve, for thousands of samples of each class; it makes some logits equal.
            negative_rate: Fraction of the negatives that `dataset` has. Default 1: it has all of
                them, and then the fit also corrects a model that was trained on fewer.

        Returns:
            The layer.

        Raises:
            ConfigError: The method is unknown, or `negative_rate` is out of range.
            DataError: On all ranks: a class has no weight, labels are not 0 or 1, or logits are not
                finite. On this rank alone: labels do not match the model's output, or it has
                several.
            StoreError: Another rank's samples are malformed, or its model or dataset failed.
        """
        if method not in ("isotonic", "platt"):
            raise ConfigError(f"method must be 'isotonic' or 'platt'. Received: {method!r}")
        _check_rate(negative_rate)  # before the samples are read
        # Checked only after the gather: a rank that raised before it would leave others waiting.
        samples = distributed.together(lambda: _samples(model, dataset))
        classes = scored_classes(distributed.allgather(samples))
        if distributed.rank() == 0:
            _report(method, classes)
        if method == "platt":
            return cls(*platt_line(classes), negative_rate=negative_rate)
        return cls(curve=isotonic_curve(classes), negative_rate=negative_rate)

    def call(self, inputs: Any) -> Any:
        """Returns the calibrated logits.

        Args:
            inputs: Logits, of any shape.
        """
        logits = self._slope * tf.cast(inputs, tf.float64) + self._intercept
        if self._curve is not None:
            probabilities = _interpolated(logits, *self._curve)
            probabilities = tf.clip_by_value(probabilities, _SMALLEST, 1 - _SMALLEST)
            logits = tf.math.log(probabilities) - tf.math.log1p(-probabilities)
        return tf.cast(logits + math.log(self._negative_rate), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "slope": self._slope,
            "intercept": self._intercept,
            "curve": None if self._curve is None else self._curve.tolist(),
            "negative_rate": self._negative_rate,
        }


def _check_rate(negative_rate: float) -> None:
    if not 0 < negative_rate <= 1:
        raise ConfigError(
            "negative_rate must be a fraction above 0, at most 1. "
            f"Received: negative_rate={negative_rate!r}"
        )


def _interpolated(logits: tf.Tensor, points: np.ndarray, probabilities: np.ndarray) -> tf.Tensor:
    inside = tf.clip_by_value(logits, points[0], points[-1])
    above = tf.searchsorted(points, tf.reshape(inside, [-1]), side="right")
    left = tf.reshape(tf.maximum(above - 1, 0), tf.shape(inside))
    right = tf.minimum(left + 1, len(points) - 1)
    begin, low = tf.gather(points, left), tf.gather(probabilities, left)
    gap, rise = tf.gather(points, right) - begin, tf.gather(probabilities, right) - low
    return low + rise * (inside - begin) / tf.where(gap > 0, gap, tf.ones_like(gap))


def _is_curve(curve: Sequence[npt.ArrayLike]) -> bool:
    if len(curve) != 2 or np.shape(curve[0]) != np.shape(curve[1]) or np.ndim(curve[0]) != 1:
        return False
    points, probabilities = np.array(curve, np.float64)
    if not points.size or not np.isfinite([points, probabilities]).all():
        return False
    ascends = (np.diff(points) > 0).all() and (np.diff(probabilities) >= 0).all()
    return bool(ascends and probabilities[0] >= 0 and probabilities[-1] <= 1)


def _samples(model: keras.Model, batches: Iterable[Any]) -> np.ndarray:
    """Returns label, logit and weight of this rank's samples, float32 `[samples, 3]`."""
    heads = samples_of_rank(model, batches).heads
    if len(heads) > 1:
        raise DataError(
            "Calibration needs a model with one output: make one, such as keras.Model(model.input, "
            f"model.output['click']). Received: labels of the outputs {[*heads]}"
        )
    return next(iter(heads.values()), np.empty((0, 3), np.float32))


def _report(method: str, classes: ScoredClasses) -> None:
    predicted = np.sum((classes.positives + classes.negatives) * sigmoid(classes.logits))
    _log.info(
        "Fitted %s calibration to %d different logits, which predict %.4g times the actual clicks",
        method,
        classes.logits.size,
        predicted / classes.positives.sum(),
    )
