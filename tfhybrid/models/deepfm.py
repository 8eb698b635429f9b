"""DeepFM: a factorization machine and a deep network over the same embeddings.

Guo, Tang, Ye, Li and He, "DeepFM: A Factorization-Machine based Neural Network for CTR
Prediction", IJCAI 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorflow import keras

from tfhybrid.models.fields import PairwiseInteractions, Tables, flat, look_up_with_weights
from tfhybrid.models.tower import tower


def deepfm(
    features: Sequence[str],
    *,
    table: Tables,
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
        table: Recipe of the embeddings, or a recipe for each feature; `table.dim` is the size of
            the factors.
        hidden: Units of the deep network's layers.
        dropout: Fraction of the deep network's activations dropped in training.
        batch_norm: Whether the deep network normalizes its activations.
        name: Name of the model.

    Returns:
        A functional model from `{feature: int64 [batch, 1]}` to logits, float `[batch, 1]`;
        train it with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Raises:
        ConfigError: `table` lacks a feature or has others, or dims differ.
        NotInitializedError: `tfhybrid.init()` was not called: layers open their tables here.
        NameTakenError: The job already has a table with the name of a feature.

    Example:

    ```python
    model = tfhybrid.models.deepfm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    ```
    """
    inputs, embeddings, first_order = look_up_with_weights(features, table)
    deep = tower(flat(embeddings), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    pairs = PairwiseInteractions()(embeddings)
    logits = keras.layers.Dense(1, name="deep")(deep) + first_order + pairs
    return keras.Model(inputs, logits, name=name)
