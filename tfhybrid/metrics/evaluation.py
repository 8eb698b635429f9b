"""Evaluation of a model over the samples of all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.errors import DataError
from tfhybrid.metrics.binary import auc, log_loss
from tfhybrid.metrics.calibration import calibration, normalized_entropy
from tfhybrid.metrics.grouped import gauc


def evaluate(
    model: keras.Model,
    dataset: Iterable[Any],
    steps: int | None = None,
    *,
    from_logits: bool = True,
    group: str | None = None,
) -> dict[str, float]:
    """Scores a binary classifier on the samples of all ranks together.

    Every rank calls it with its own share, of whatever size, none included; all get the same
    numbers. An average of the ranks' AUCs would be another number than the AUC of all samples.

    Args:
        model: Gives one value per sample, `[batch, 1]` or `[batch]`.
        dataset: This rank's batches: `(features, labels)` or `(features, labels, weights)`.
        steps: Number of batches to take. Defaults to all.
        from_logits: Whether the model gives logits (the models of tfhybrid do) or probabilities.
        group: A feature with one integer key per sample, such as "user", whose samples are ranked
            among themselves.

    Returns:
        `"auc"`, `"log_loss"`, `"normalized_entropy"`, `"calibration"`, `"samples"`, the number of
        samples of all ranks, and with a group `"gauc"`.

    Raises:
        DataError: No rank has a sample, labels other than 0 and 1, predictions that are not
            finite, or a group that is no such feature; on all ranks alike.

    Example:

    ```python
    model.fit(train, epochs=3)
    print(tfhybrid.metrics.evaluate(model, test, group="user")["gauc"])
    ```
    """
    # Checked after the gather only: a rank that raised before it would leave the others waiting.
    share, keys = distributed.together(
        lambda: _share(model, itertools.islice(dataset, steps), group)
    )
    labels, outputs, weights = distributed.allgather(share).T
    area = auc(labels, outputs, weights)
    probabilities = _sigmoid(outputs) if from_logits else outputs
    scores = {
        "auc": area,
        "log_loss": log_loss(labels, probabilities, weights),
        "normalized_entropy": normalized_entropy(labels, probabilities, weights),
        "calibration": calibration(labels, probabilities, weights),
        "samples": float(labels.size),
    }
    if group is not None:
        scores["gauc"] = gauc(distributed.allgather(keys), labels, outputs, weights)
    return scores


def _share(
    model: keras.Model, batches: Iterable[Any], group: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns label, output, weight of this rank's samples, `[samples, 3]`, and their groups."""
    columns, keys = [np.empty((0, 3), np.float32)], [np.empty(0, np.int64)]
    for batch in batches:
        columns.append(_predict(model, batch))
        if group is not None:
            keys.append(_keys(batch, group, len(columns[-1])))
    return np.concatenate(columns), np.concatenate(keys)


def _keys(batch: Any, group: str, samples: int) -> np.ndarray:
    features, *_ = keras.utils.unpack_x_y_sample_weight(batch)
    names = [*features] if isinstance(features, Mapping) else type(features).__name__
    keys = np.asarray(features[group]) if group in names else np.empty(0)
    if keys.dtype.kind not in "iu" or keys.size != samples:
        raise DataError(
            f"group is a feature with one integer key per sample. Received: group={group!r}, "
            f"features {names}, its keys {keys.dtype.name} {list(keys.shape)} of {samples} samples."
        )
    return keys.astype(np.int64).ravel()


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
