"""Logistic regression: a weight for each key.

Richardson, Dominowska and Ragno, "Predicting Clicks: Estimating the Click-Through Rate for New
Ads", WWW 2007.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorflow import keras

from tfhybrid.models.fields import Bias, Sum, Tables, look_up, recipes


def lr(
    features: Sequence[str],
    *,
    table: Tables,
    name: str = "lr",
) -> keras.Model:
    """Builds logistic regression over one-valued categorical features.

    Args:
        features: Names of the features. Each gets a table of that name, with rows of one value.
        table: Recipe of the weights, or a recipe for each feature; its `dim` does not count.
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
    model = tfhybrid.models.lr(["user", "item"], table=tfhybrid.TableConfig(dim=1))
    ```
    """
    inputs, weights = look_up(features, recipes(features, table, dim=1))
    logits = Bias(name="bias")(Sum()(weights))
    return keras.Model(inputs, logits, name=name)
