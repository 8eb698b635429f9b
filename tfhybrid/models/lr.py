"""Logistic regression: a weight for each key.

Richardson, Dominowska and Ragno, "Predicting Clicks: Estimating the Click-Through Rate for New
Ads", WWW 2007.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorflow import keras

from tfhybrid.models.fields import NO_NUMBERS, Bias, Tables, first_order, look_up, recipes


def lr(
    features: Sequence[str],
    *,
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    name: str = "lr",
) -> keras.Model:
    """Builds logistic regression over categorical features and numbers.

    Args:
        {{features}}
        table: Recipe of the weights, or a recipe for each feature; its `dim` does not count.
        {{dense}}
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
    inputs, weights, numbers = look_up(features, recipes(features, table, dim=1), dense)
    logits = Bias(name="bias")(first_order(weights, numbers))
    return keras.Model(inputs, logits, name=name)
