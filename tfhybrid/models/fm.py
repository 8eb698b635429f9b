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
    """Builds a factorization machine over one-valued categorical features.

    Args:
        features: Names of the features. Each gets a table of that name, with rows of
            `table.dim + 1` values: the embedding and the first-order weight.
        table: Recipe of the embeddings, or a recipe for each feature; `table.dim` is the size of
            the factors.
        name: Name of the model.

    Returns:
        A functional model from `{feature: int64 [batch, 1]}` to logits, float `[batch, 1]`;
        train it with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Raises:
        ConfigError: `table` lacks a feature or has others, or dims differ.
        NotInitializedError: `tfhybrid.init()` was not called: layers open their tables here.
        NameTakenError: The job already has a table with the name of a feature.

    Example:

    ```python
    model = tfhybrid.models.fm(["user", "item"], table=tfhybrid.TableConfig(dim=10))
    ```
    """
    inputs, embeddings, first_order = look_up_with_weights(features, table)
    logits = Bias(name="bias")(first_order + PairwiseInteractions()(embeddings))
    return keras.Model(inputs, logits, name=name)
