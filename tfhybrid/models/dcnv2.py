"""DCN-V2: explicit feature crosses beside a deep network.

Wang, Shivanna, Cheng, Jain, Lin, Hong and Chi, "DCN V2: Improved Deep & Cross Network and
Practical Lessons for Web-scale Learning to Rank Systems", WWW 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import NO_NUMBERS, Tables, flat, look_up, side_by_side
from tfhybrid.models.tower import tower


def dcnv2(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    crosses: int = 3,
    hidden: Sequence[int] = (400, 400, 400),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "dcnv2",
) -> keras.Model:
    """Builds DCN-V2, in its parallel form, over categorical features and numbers.

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
    model = tfhybrid.models.dcnv2(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    ```
    """
    inputs, fields, numbers = look_up(features, table, dense)
    read = crossed = flat(fields, numbers)
    for index in range(1, crosses + 1):
        weighted = keras.layers.Dense(read.shape[-1], name=f"cross_{index}")(crossed)
        crossed = read * weighted + crossed
    deep = tower(read, hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    logits = keras.layers.Dense(1, name="logits")(side_by_side([crossed, deep]))
    return keras.Model(inputs, logits, name=name)
