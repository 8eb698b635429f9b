"""Evaluation of a model over the samples of all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from tfhybrid import distributed
from tfhybrid.metrics.binary import auc, log_loss


def evaluate(
    model: keras.Model,
    dataset: Iterable[Any],
    steps: int | None = None,
    *,
    from_logits: bool = True,
) -> dict[str, float]:
    """Scores a binary classifier on the samples of all ranks together.

    Every rank calls it with its own share, of whatever size, none included; all get the same
    numbers. An average of the ranks' AUCs would be another number than the AUC of all samples.

    Args:
        model: Gives one value per sample, `[batch, 1]` or `[batch]`.
        dataset: This rank's batches: `(features, labels)` or `(features, labels, weights)`.
        steps: Number of batches to take. Defaults to all.
        from_logits: Whether the model gives logits (the models of tfhybrid do) or probabilities.

    Returns:
        `"auc"`, `"log_loss"` and `"samples"`, the number of samples of all ranks.

    Raises:
        DataError: No rank has a sample, labels other than 0 and 1, or predictions that are not
            finite; on all ranks alike.

    Example:

    ```python
    model.fit(train, epochs=3)
    print(tfhybrid.metrics.evaluate(model, test)["auc"])
    ```
    """
    columns = [_predict(model, batch) for batch in itertools.islice(dataset, steps)]
    share = np.concatenate([np.empty((0, 3), np.float32), *columns])
    # Checked after the gather only: a rank that raised before it would leave the others waiting.
    labels, outputs, weights = distributed.allgather(share).T
    area = auc(labels, outputs, weights)
    probabilities = _sigmoid(outputs) if from_logits else outputs
    loss = log_loss(labels, probabilities, weights)
    return {"auc": area, "log_loss": loss, "samples": float(labels.size)}


def _predict(model: keras.Model, batch: Any) -> np.ndarray:
    """Columns label, output, weight of one batch: float32 `[samples, 3]`."""
    features, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
    labels = np.asarray(labels, np.float32).ravel()
    outputs = np.asarray(model.predict_on_batch(features), np.float32).ravel()
    weights = np.ones_like(labels) if weights is None else np.asarray(weights, np.float32).ravel()
    return np.stack([labels, outputs, weights], axis=1)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    """Float64 and through logaddexp: no logit overflows, small probabilities keep their digits."""
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
