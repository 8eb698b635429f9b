"""A deep network over embeddings.

Covington, Adams and Sargin, "Deep Neural Networks for YouTube Recommendations", RecSys 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import NO_NUMBERS, Tables, flat, look_up
from tfhybrid.models.tower import tower


def dnn(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "dnn",
) -> keras.Model:
    """Builds a deep network over categorical features and numbers.

    Args:
        {{features}}
        {{table}}
        {{dense}}
        {{deep}}

    Returns:
        {{logits}}

    Raises:
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.dnn(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, fields, numbers = look_up(features, table, dense)
    deep = tower(flat(fields, numbers), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    return keras.Model(inputs, keras.layers.Dense(1, name="logits")(deep), name=name)
