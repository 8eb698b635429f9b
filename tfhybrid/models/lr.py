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
    """Builds logistic regression over categorical features.

    Args:
        {{features}}
        table: Recipe of the weights, or a recipe for each feature; its `dim` does not count.
        name: Name of the model.

    Returns:
        {{logits}}

    Raises:
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.lr(["user", "item"], table=tfhybrid.TableConfig(dim=1))
    ```
    """
    inputs, weights = look_up(features, recipes(features, table, dim=1))
    logits = Bias(name="bias")(Sum()(weights))
    return keras.Model(inputs, logits, name=name)
