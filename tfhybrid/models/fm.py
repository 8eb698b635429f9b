"""Factorization machine: a weight for each key, and the inner products of all pairs of keys.

Rendle, "Factorization Machines", ICDM 2010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import (
    NO_NUMBERS,
    Bias,
    PairwiseInteractions,
    Tables,
    look_up_with_weights,
)


def fm(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    name: str = "fm",
) -> keras.Model:
    """Builds a factorization machine over categorical features and numbers.

    Args:
        {{features}}
        {{table_with_weights}}
        {{dense}}
        name: Name of the model.

    Returns:
        {{logits}}

    Raises:
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.fm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, embeddings, first_order, _ = look_up_with_weights(features, table, dense)
    logits = Bias(name="bias")(first_order + PairwiseInteractions()(embeddings))
    return keras.Model(inputs, logits, name=name)
