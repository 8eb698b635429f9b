"""Deep & Cross Network: crosses of rank one beside a deep network.

Wang, Fu, Fu and Wang, "Deep & Cross Network for Ad Click Predictions", ADKDD 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import NO_NUMBERS, Bias, Tables, flat, look_up, side_by_side
from tfhybrid.models.tower import tower


def dcn(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    crosses: int = 3,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "dcn",
) -> keras.Model:
    """Builds the Deep & Cross Network over categorical features and numbers.

    Args:
        {{features}}
        {{table}}
        {{dense}}
        crosses: Number of cross layers; a stack of `n` reaches interactions of order `n + 1`.
        {{deep}}

    Returns:
        {{logits}}

    Raises:
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.dcn(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, fields, numbers = look_up(features, table, dense)
    read = crossed = flat(fields, numbers)
    for index in range(1, crosses + 1):
        weight = keras.layers.Dense(1, use_bias=False, name=f"cross_{index}")(crossed)
        crossed = Bias(name=f"cross_bias_{index}")(read * weight + crossed)
    deep = tower(read, hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    logits = keras.layers.Dense(1, name="logits")(side_by_side([crossed, deep]))
    return keras.Model(inputs, logits, name=name)
