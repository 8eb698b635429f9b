"""Labels, outputs and weights of the samples that a rank predicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from tensorflow import keras

from tfhybrid.errors import DataError


class RankSamples(NamedTuple):
    """The samples of a rank.

    Attributes:
        heads: Label, output and weight of each sample, float32 `[samples, 3]`, by output name.
        keys: Group of each sample, int64 `[samples]`; empty without a group.
        logits: Whether an output is a logit, by output name.
    """

    heads: dict[str, np.ndarray]
    keys: np.ndarray
    logits: dict[str, bool]


def samples_of_rank(
    model: keras.Model,
    batches: Iterable[Any],
    group: str | None = None,
    from_logits: bool | Mapping[str, bool] = True,
    outputs: Collection[str] | None = None,
) -> RankSamples:
    """Predicts batches of this rank.

    Args:
        model: Model with one value per sample in each of its outputs.
        batches: Batches, `(features, labels)` or `(features, labels, weights)`.
        group: Feature with one integer key per sample. Default: none.
        from_logits: Whether outputs are logits; a dictionary by output if they differ. Default:
            they are.
        outputs: Names of the outputs to keep. Default: all outputs with a label.

    Raises:
        DataError: Labels do not match outputs, differ between batches, or do not have the size of
            their outputs; `group`, `from_logits` or `outputs` does not fit the model.
    """
    columns: dict[str, list[np.ndarray]] = {}
    keys = [np.empty(0, np.int64)]
    for batch in batches:
        predicted = _predict(model, batch, outputs)
        if columns and columns.keys() != predicted.keys():
            raise DataError(
                "All batches must have labels of the same outputs. "
                f"Received: {[*columns]}, {[*predicted]}"
            )
        for name, of_batch in predicted.items():
            columns.setdefault(name, []).append(of_batch)
        if group is not None:
            samples = {len(of_batch) for of_batch in predicted.values()}
            keys.append(_keys(batch, group, max(samples)))
    heads = {name: np.concatenate(of_head) for name, of_head in columns.items()}
    return RankSamples(heads, np.concatenate(keys), _logits(from_logits, heads))


def _chosen(labels: dict[str, Any], outputs: Collection[str] | None) -> dict[str, Any]:
    """Returns the labels of the outputs to score."""
    if outputs is None:
        return labels
    if isinstance(outputs, str) or not outputs or not set(outputs) <= labels.keys():
        raise DataError(
            f"outputs must be a list of outputs with labels, {[*labels]}. Received: {outputs!r}"
        )
    return {name: labels[name] for name in labels if name in outputs}


def _logits(from_logits: bool | Mapping[str, bool], names: Iterable[str]) -> dict[str, bool]:
    if not isinstance(from_logits, Mapping):
        return dict.fromkeys(names, from_logits)
    if missing := [name for name in names if name not in from_logits]:
        raise DataError(
            f"from_logits must name all outputs. Received: {dict(from_logits)}, not {missing}"
        )
    return {name: from_logits[name] for name in names}


def _predict(
    model: keras.Model, batch: Any, chosen: Collection[str] | None
) -> dict[str, np.ndarray]:
    """Returns label, output and weight of a batch's samples: output name -> float32 `[samples, 3]`.

    Outputs without a label are left out. A single output has the name "".
    """
    features, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
    outputs = _named(model, model.predict_on_batch(features), "outputs")
    labels = _named(model, labels, "labels")
    weights = {} if weights is None else _named(model, weights, "weights")
    if len(outputs) == len(labels) == 1:
        labels = dict(zip(outputs, labels.values(), strict=True))
        weights = dict(zip(outputs, weights.values(), strict=False))
    elif weights.keys() == {""}:  # one weight for all outputs
        weights = dict.fromkeys(labels, weights[""])
    if not labels or not labels.keys() <= outputs.keys():
        raise DataError(
            "Labels must have the names of the model's outputs, or be in their order. "
            f"Received: labels {[*labels]}, outputs {[*outputs]}"
        )
    return {
        name: _columns(name, label, outputs[name], weights.get(name))
        for name, label in _chosen(labels, chosen).items()
    }


def _named(model: keras.Model, values: Any, what: str) -> dict[str, Any]:
    if isinstance(values, Mapping):
        return dict(values)
    if not isinstance(values, list | tuple):
        return {"": values}
    names = list(getattr(model, "output_names", None) or [])
    if len(names) != len(values):
        names = [f"output_{number}" for number in range(len(values))]
    if len(set(names)) != len(values):
        raise DataError(f"The {what} must have different names. Received: {names}")
    return dict(zip(names, values, strict=True))


def _columns(name: str, label: Any, output: Any, weight: Any) -> np.ndarray:
    labels = np.asarray(label, np.float32).ravel()
    outputs = np.asarray(output, np.float32).ravel()
    weights = np.ones_like(labels) if weight is None else np.asarray(weight, np.float32).ravel()
    if not labels.size == outputs.size == weights.size:
        raise DataError(
            "Each sample must have one label, one output and one weight. Received: "
            f"{name or 'labels'} {list(np.shape(label))}, outputs {list(np.shape(output))}, "
            f"{weights.size} weights"
        )
    return np.stack([labels, outputs, weights], axis=1)


def _keys(batch: Any, group: str, samples: int) -> np.ndarray:
    features, *_ = keras.utils.unpack_x_y_sample_weight(batch)
    names = [*features] if isinstance(features, Mapping) else type(features).__name__
    keys = np.asarray(features[group]) if group in names else np.empty(0)
    if keys.dtype.kind not in "iu" or keys.size != samples:
        raise DataError(
            f"group must be a feature with one integer key per sample. Received: group={group!r}, "
            f"features {names}, its keys {keys.dtype.name} {list(keys.shape)} of {samples} samples."
        )
    return keys.astype(np.int64).ravel()
