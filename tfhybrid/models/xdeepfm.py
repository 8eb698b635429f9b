"""xDeepFM: a compressed interaction network beside a deep network and first-order weights.

Lian, Zhou, Zhang, Chen, Xie and Sun, "xDeepFM: Combining Explicit and Implicit Feature Interactions
for Recommender Systems", KDD 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from tfhybrid.config import TableConfig
from tfhybrid.models.fields import flat, look_up_with_weights
from tfhybrid.models.tower import tower


def xdeepfm(
    features: Sequence[str],
    *,
    table: TableConfig,
    interactions: Sequence[int] = (64, 64),
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "xdeepfm",
) -> keras.Model:
    """Builds xDeepFM over one-valued categorical features.

    Args:
        features: Names of the features. Each gets a table of that name, with rows of
            `table.dim + 1` values: the embedding and the first-order weight.
        table: Recipe of the embeddings.
        interactions: Feature maps of each layer of the interaction network; the n-th layer's are of
            order `n + 1`.
        hidden: Units of the deep network's layers.
        dropout: Fraction of the deep network's activations dropped in training.
        batch_norm: Whether the deep network normalises its activations.
        name: Name of the model.

    Returns:
        A functional model from `{feature: int64 [batch, 1]}` to logits, float `[batch, 1]`;
        train it with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Example:

    ```python
    model = tfhybrid.models.xdeepfm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, fields, first_order = look_up_with_weights(features, table)
    deep = tower(flat(fields), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    maps, pooled = fields, []
    for index, units in enumerate(interactions, start=1):
        products = ops.einsum("bhd,bmd->bdhm", maps, fields)
        products = keras.layers.Reshape((table.dim, -1))(products)
        compressed = keras.layers.Dense(units, use_bias=False, name=f"interaction_{index}")(
            products
        )
        pooled.append(ops.sum(compressed, axis=1))
        maps = ops.transpose(compressed, (0, 2, 1))
    both = ops.concatenate([*pooled, deep], axis=1)
    logits = keras.layers.Dense(1, name="logits")(both) + first_order
    return keras.Model(inputs, logits, name=name)
