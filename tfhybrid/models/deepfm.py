"""DeepFM: a factorisation machine and a deep network over the same embeddings.

Guo, Tang, Ye, Li and He, "DeepFM: A Factorization-Machine based Neural Network for CTR
Prediction", IJCAI 2017.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import keras
from keras import ops

from tfhybrid.config import TableConfig
from tfhybrid.layers import EmbeddingCollection
from tfhybrid.models.tower import tower


def deepfm(
    features: Sequence[str],
    *,
    table: TableConfig,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "deepfm",
) -> keras.Model:
    """Builds DeepFM over one-valued categorical features.

    Args:
        features: Names of the features, in the order in which the deep network reads them. Each
            gets a table of that name, with rows of `table.dim + 1` values: the embedding and the
            first-order weight.
        table: Recipe of the embeddings; `table.dim` is the size of the factors.
        hidden: Units of the deep network's layers.
        dropout: Fraction of the deep network's activations dropped in training.
        batch_norm: Whether the deep network normalises its activations.
        name: Name of the model.

    Returns:
        A functional model from `{feature: int64 [batch, 1]}` to logits, float `[batch, 1]`;
        train it with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Example:

    ```python
    model = tfhybrid.models.deepfm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    ```
    """
    inputs = {feature: keras.Input((1,), dtype="int64", name=feature) for feature in features}
    # The first-order weight is one more column of the embedding's row: one lookup, one index
    # entry and one gradient per key serve both, where a table of its own would double them.
    row = dataclasses.replace(table, dim=table.dim + 1)
    rows = EmbeddingCollection(dict.fromkeys(features, row))(inputs)
    fields = ops.concatenate([rows[feature] for feature in features], axis=1)
    embeddings, first_order = fields[..., :-1], fields[..., -1]

    deep = tower(
        keras.layers.Flatten(name="embeddings")(embeddings),
        hidden=hidden,
        dropout=dropout,
        batch_norm=batch_norm,
    )
    logits = (
        keras.layers.Dense(1, name="deep")(deep)
        + ops.sum(first_order, axis=1, keepdims=True)
        + _pairwise_interactions(embeddings)
    )
    return keras.Model(inputs, logits, name=name)


def _pairwise_interactions(embeddings: keras.KerasTensor) -> keras.KerasTensor:
    """Sums the inner products of all pairs of fields: `[batch, fields, dim]` -> `[batch, 1]`.

    The sum over pairs is half of (square of the sum - sum of the squares), which is linear in the
    number of fields.
    """
    square_of_sum = ops.square(ops.sum(embeddings, axis=1))
    sum_of_squares = ops.sum(ops.square(embeddings), axis=1)
    return 0.5 * ops.sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)
