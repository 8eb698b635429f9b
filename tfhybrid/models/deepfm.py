"""DeepFM: a factorization machine and a deep network over the same embeddings.

Guo, Tang, Ye, Li and He, "DeepFM: A Factorization-Machine based Neural Network for CTR
Prediction", IJCAI 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import (
    NO_NUMBERS,
    PairwiseInteractions,
    Tables,
    flat,
    look_up_with_weights,
)
from tfhybrid.models.tower import tower


def deepfm(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "deepfm",
) -> keras.Model:
    """Builds DeepFM over categorical features and numbers.

    Args:
        {{features}}
        {{table_with_weights}}
        {{dense}}
        {{deep}}

    Returns:
        {{logits}}

    Raises:
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.deepfm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    ```
    """
    inputs, embeddings, first_order, numbers = look_up_with_weights(features, table, dense)
    deep = tower(flat(embeddings, numbers), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    pairs = PairwiseInteractions()(embeddings)
    logits = keras.layers.Dense(1, name="deep")(deep) + first_order + pairs
    return keras.Model(inputs, logits, name=name)
