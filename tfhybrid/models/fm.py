"""Factorization machine: a weight for each key, and the inner products of all pairs of keys.

Rendle, "Factorization Machines", ICDM 2010.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorflow import keras

from tfhybrid.models.fields import Bias, PairwiseInteractions, Tables, look_up_with_weights


def fm(
    features: Sequence[str],
    *,
    table: Tables,
    name: str = "fm",
) -> keras.Model:
    """Builds a factorization machine over categorical features.

    Args:
        {{features}}
        {{table_with_weights}}
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
    inputs, embeddings, first_order = look_up_with_weights(features, table)
    logits = Bias(name="bias")(first_order + PairwiseInteractions()(embeddings))
    return keras.Model(inputs, logits, name=name)
