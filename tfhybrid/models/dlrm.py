"""DLRM: inner products of all pairs of embeddings, or the embeddings, and a network over them.

Naumov and others, "Deep Learning Recommendation Model for Personalization and Recommendation
Systems", arXiv:1906.00091, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError
from tfhybrid.models.fields import NO_NUMBERS, Tables, dim_of, flat, look_up, side_by_side
from tfhybrid.models.tower import tower


def dlrm(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    bottom: Sequence[int] = (64,),
    interaction: Literal["dot", "cat"] = "dot",
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "dlrm",
) -> keras.Model:
    """Builds DLRM over categorical features and dense columns.

    As in the paper, the network reads the interaction and the bottom layers' output for the dense
    columns. Products alone contain little information, so without dense columns it reads them
    together with the embeddings.

    Args:
        {{features}}
        {{table}}
        dense: Width of each dense column, float `[batch, width]`, by name; none by default.
        bottom: Units of the layers over the dense columns, before the last one of `table.dim`
            units.
        interaction: `"dot"` for the products of all pairs, `"cat"` for concatenated embeddings; the
            authors' program has both.
        {{deep}}

    Returns:
        {{logits}}

    Raises:
        ConfigError: The interaction is unknown.
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.dlrm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    if interaction not in ("dot", "cat"):
        raise ConfigError(f"DLRM's interaction must be 'dot' or 'cat'. Received: {interaction!r}.")
    inputs, fields, numbers = look_up(features, table, dense)
    described = [_described(numbers, (*bottom, dim_of(table)))] if numbers else []
    fields = side_by_side([*(each[:, None] for each in described), fields])
    if interaction == "cat":
        read = [flat(fields)]
    else:
        read = [*(described or [flat(fields)]), PairProducts(name="pairs")(fields)]
    top = tower(side_by_side(read), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    return keras.Model(inputs, keras.layers.Dense(1, name="logits")(top), name=name)


def _described(columns: list[keras.KerasTensor], units: Sequence[int]) -> keras.KerasTensor:
    """Maps dense columns to one more field, `[batch, units[-1]]`."""
    outputs = side_by_side(columns)
    for index, width in enumerate(units, start=1):
        layer = keras.layers.Dense(width, activation="relu", name=f"bottom_{index}")
        outputs = layer(outputs)
    return outputs


@keras.utils.register_keras_serializable(package="tfhybrid")
class PairProducts(keras.layers.Layer):
    """Inner products of all pairs of fields: `[batch, fields, dim]` -> `[batch, pairs]`."""

    def call(self, inputs: Any) -> Any:
        """Returns the products `[batch, pairs]`; pairs in the order (0, 1), (0, 2), ... (1, 2), ...

        Args:
            inputs: Fields, `[batch, fields, dim]`.
        """
        count = inputs.shape[1]
        products = tf.reshape(tf.matmul(inputs, inputs, transpose_b=True), (-1, count * count))
        first, second = np.triu_indices(count, 1)
        return tf.gather(products, first * count + second, axis=1)
