"""Evaluation of a model over the samples of all ranks."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.core import native
from tfhybrid.errors import DataError
from tfhybrid.metrics.binary import auc, log_loss, sigmoid
from tfhybrid.metrics.calibration import calibration, normalized_entropy
from tfhybrid.metrics.grouped import gauc
from tfhybrid.metrics.predicted_samples import samples_of_rank
from tfhybrid.metrics.probabilities import warn_of_probabilities

_log = logging.getLogger("tfhybrid.metrics")


@distributed.call("metrics.evaluate")
def evaluate(
    model: keras.Model,
    dataset: Iterable[Any],
    steps: int | None = None,
    *,
    from_logits: bool | Mapping[str, bool] = True,
    group: str | None = None,
    outputs: Collection[str] | None = None,
) -> dict[str, float]:
    """Scores a binary classifier on the samples of all ranks together.

    Every rank must call it with its own samples, of which there may be none. All ranks get the
    same numbers. The AUC is that of all samples, not the average of the ranks' AUCs.

    Args:
        model: Model that returns one value per sample, `[batch, 1]` or `[batch]`; or several such
            outputs, in a dictionary or a list.
        dataset: Batches of this rank: `(features, labels)` or `(features, labels, weights)`. For a
            model with several outputs, labels and weights are dictionaries or lists too; outputs
            without a label are left out.
        steps: Number of batches to take. Defaults to all.
        from_logits: Whether the model returns logits (tfhybrid's models do) or probabilities; a
            dictionary by output if outputs differ. Outputs that look like probabilities are scored
            as logits with a warning.
        group: Feature with one integer key per sample, such as "user", by which samples are
            grouped for GAUC.
        outputs: Names of the outputs to score, if others have labels too that are not 0 or 1.
            Defaults to all outputs with a label.

    If keys had no row, and so read what `TableConfig.unseen` says, the log tells their share.

    Returns:
        `"auc"`, `"log_loss"`, `"normalized_entropy"`, `"calibration"`, `"samples"` (the number of
        samples of all ranks) and, with a group, `"gauc"`. For a model with several outputs the
        names are those of Keras, such as `"click_auc"`; outputs in a list are named after their
        layers.

    Raises:
        DataError: On all ranks: no rank has samples, labels are not 0 or 1, predictions are not
            finite, or the ranks' outputs differ. On this rank alone: labels do not match outputs, a
            name in `outputs` is not an output with a label, or `group` is not such a feature.
        StoreError: Another rank's samples are malformed, or its model or dataset failed.

    Example:

    ```python
    model.fit(train, epochs=3)
    print(tfhybrid.metrics.evaluate(model, test, group="user")["gauc"])
    ```
    """
    before = _keys_read()
    # Checked only after the gather: a rank that raised before it would leave the others waiting.
    samples = distributed.together(
        lambda: samples_of_rank(
            model, itertools.islice(dataset, steps), group, from_logits, outputs
        )
    )
    every = distributed.allgather_object((samples.logits, _keys_read() - before))
    _report_unseen([read for _, read in every])
    keys = None if group is None else distributed.allgather(samples.keys)
    names, logits = _agreed([logits for logits, _ in every])
    nothing = np.empty((0, 3), np.float32)
    all_columns = {name: distributed.allgather(samples.heads.get(name, nothing)) for name in names}
    # The ranks have met for the last time: an error of one of them leaves no other one waiting.
    scores: dict[str, float] = {}
    for name, columns in all_columns.items():
        prefix = f"{name}_" if len(names) > 1 or name else ""
        if logits[name] and distributed.rank() == 0:
            warn_of_probabilities(model, name, columns[:, 1])
        of_output = _scores(columns, logits[name], keys)
        scores |= {f"{prefix}{metric}": value for metric, value in of_output.items()}
    return scores


def _keys_read() -> np.ndarray:
    """Returns how many keys this process has read outside of training, and how many had no row."""
    counters = native.counters()
    return np.array([counters["keys_read"], counters["unseen_keys"]])


def _report_unseen(of_ranks: Sequence[np.ndarray]) -> None:
    """Logs the share of keys without a row among those that all ranks have read."""
    read, unseen = np.sum(of_ranks, axis=0).tolist()
    if unseen and distributed.rank() == 0:
        _log.info("Evaluated: %.2f %% of %d keys had no row", 100 * unseen / read, read)


def _agreed(every: Sequence[dict[str, bool]]) -> tuple[list[str], dict[str, bool]]:
    """Returns names and logits of the outputs, which all ranks with samples must agree on."""
    filled = [logits for logits in every if logits]
    if any(logits != filled[0] for logits in filled):
        raise DataError(
            f"Outputs and labels must have the same names on all ranks. Received: {filled}"
        )
    logits = filled[0] if filled else {"": True}  # without any sample, the metrics raise the error
    return [*logits], logits


def _scores(columns: np.ndarray, from_logits: bool, keys: np.ndarray | None) -> dict[str, float]:
    labels, outputs, weights = columns.T
    probabilities = sigmoid(outputs) if from_logits else outputs
    scores = {
        "auc": auc(labels, outputs, weights),
        "log_loss": log_loss(labels, probabilities, weights),
        "normalized_entropy": normalized_entropy(labels, probabilities, weights),
        "calibration": calibration(labels, probabilities, weights),
        "samples": float(labels.size),
    }
    if keys is not None:
        scores["gauc"] = gauc(keys, labels, outputs, weights)
    return scores
