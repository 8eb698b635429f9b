"""xDeepFM: a compressed interaction network beside a deep network and first-order weights.

Lian, Zhou, Zhang, Chen, Xie and Sun, "xDeepFM: Combining Explicit and Implicit Feature Interactions
for Recommender Systems", KDD 2018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.models.fields import NO_NUMBERS, Sum, Tables, flat, look_up_with_weights, side_by_side
from tfhybrid.models.tower import tower


def xdeepfm(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    interactions: Sequence[int] = (64, 64),
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "xdeepfm",
) -> keras.Model:
    """Builds xDeepFM over categorical features and numbers.

    Args:
        {{features}}
        {{table_with_weights}}
        {{dense}}
        interactions: Feature maps of each layer of the interaction network; the n-th layer's are of
            order `n + 1`.
        {{deep}}

    Returns:
        {{logits}}

    Raises:
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.xdeepfm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, fields, first_order, numbers = look_up_with_weights(features, table, dense)
    deep = tower(flat(fields, numbers), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    maps, pooled = fields, []
    for index, units in enumerate(interactions, start=1):
        products = Products(name=f"products_{index}")([maps, fields])
        compressed = keras.layers.Dense(units, use_bias=False, name=f"interaction_{index}")(
            products
        )
        pooled.append(Sum()(compressed))
        maps = keras.layers.Permute((2, 1))(compressed)
    logits = keras.layers.Dense(1, name="logits")(side_by_side([*pooled, deep])) + first_order
    return keras.Model(inputs, logits, name=name)


@keras.utils.register_keras_serializable(package="tfhybrid")
class Products(keras.layers.Layer):
    """Multiplies each map with each field, dim by dim.

    `[batch, maps, dim]` and `[batch, fields, dim]` -> `[batch, dim, maps * fields]`.
    """

    def call(self, inputs: Any) -> Any:
        """Returns the products, `[batch, dim, maps * fields]`.

        Args:
            inputs: Maps, `[batch, maps, dim]`, and fields, `[batch, fields, dim]`.
        """
        maps, fields = inputs
        products = tf.einsum("bhd,bmd->bdhm", maps, fields)
        return tf.reshape(products, (-1, maps.shape[2], maps.shape[1] * fields.shape[1]))
