"""Wide & Deep: logistic regression beside a deep network.

Cheng and others, "Wide & Deep Learning for Recommender Systems", DLRS 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import NO_NUMBERS, Tables, flat, look_up_with_weights
from tfhybrid.models.tower import tower


def wide_deep(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "wide_deep",
) -> keras.Model:
    """Builds Wide & Deep over categorical features and numbers.

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
    model = tfhybrid.models.wide_deep(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, fields, first_order, numbers = look_up_with_weights(features, table, dense)
    deep = tower(flat(fields, numbers), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    logits = keras.layers.Dense(1, name="deep")(deep) + first_order
    return keras.Model(inputs, logits, name=name)
