"""Deep Interest Network: a user's earlier behaviours, weighted by their relation to a candidate.

Zhou, Song, Zhu, Ma, Yan, Dai, Zhu, Jin, Li and Gai, "Deep Interest Network for Click-Through Rate
Prediction", KDD 2018.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.layers import EmbeddingCollection
from tfhybrid.models.fields import (
    NO_NUMBERS,
    Tables,
    as_fields,
    dense_inputs,
    flat,
    key_inputs,
    list_input,
    recipes,
    side_by_side,
)
from tfhybrid.models.tower import tower


def din(
    features: Sequence[str],
    *,
    behaviours: Mapping[str, str],
    table: Tables,
    dense: Mapping[str, int] = NO_NUMBERS,
    max_length: int | None = None,
    attention: Sequence[int] = (80, 40),
    hidden: Sequence[int] = (200, 80),
    dropout: float = 0.0,
    batch_norm: bool = False,
    name: str = "din",
) -> keras.Model:
    """Builds the Deep Interest Network over features, sequences of behaviours and numbers.

    Sequences are ragged, without padding; a sample without behaviours reads zeros. As in the paper,
    the weights of a sequence are not normalized, so that many related behaviours count more than
    one. The towers use ReLU instead of the paper's Dice.

    Args:
        {{features}}
        behaviours: Sequences: name -> feature of the candidate with which the sequence is compared,
            and whose table it reads: `{"clicked_items": "item"}`. A candidate is no list.
        {{table}}
        {{dense}}
        max_length: Maximum number of keys per sequence; the last ones are used. Default: all keys.
        attention: Units of the layers that weigh a behaviour, before the output layer.
        {{deep}}

    Returns:
        A functional model from `{feature: int64 [batch, 1], sequence or list: int64 tf.RaggedTensor
        [batch, (length)], dense column: float [batch, width]}` to logits, float `[batch, 1]`;
        train it with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Raises:
        ConfigError: A sequence is compared with a list or an unknown feature, or has the name of a
            feature.
        {{errors}}

    Example:

    ```python
    model = tfhybrid.models.din(
        ["user", "item"],
        behaviours={"clicked_items": "item"},
        table=tfhybrid.TableConfig(dim=16),
        max_length=50,
    )
    ```
    """
    if set(behaviours) & set(features) or not set(behaviours.values()) <= set(features):
        raise ConfigError(
            "behaviours must have names that are no features, each with the feature it is "
            "compared with. "
            f"Received: behaviours={dict(behaviours)}, features={list(features)}"
        )
    configs = recipes(features, table)
    if lists := sorted({each for each in behaviours.values() if configs[each].combiner}):
        raise ConfigError(
            "behaviours must be compared with features of one key per sample, without a combiner. "
            f"Received: {lists} with one"
        )
    inputs = key_inputs(configs)
    inputs |= {sequence: list_input(sequence) for sequence in behaviours}
    columns = dense_inputs(dense, inputs)
    rows = _rows_of(configs, behaviours, max_length)(inputs)
    inputs |= columns
    read = [flat(as_fields(rows, configs), list(columns.values()))]
    for sequence, feature in behaviours.items():
        interest = Interest(attention, name=f"interest_{sequence}")
        read.append(interest([rows[sequence], keras.layers.Flatten()(rows[feature])]))
    deep = tower(side_by_side(read), hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    return keras.Model(inputs, keras.layers.Dense(1, name="logits")(deep), name=name)


def _rows_of(
    configs: Mapping[str, TableConfig], behaviours: Mapping[str, str], max_length: int | None
) -> EmbeddingCollection:
    of_all = dict(configs)
    shared: dict[str, list[str]] = {feature: [feature] for feature in behaviours.values()}
    for sequence, feature in behaviours.items():
        shared[feature].append(sequence)
        cut = dataclasses.replace(configs[feature], max_length=max_length, keep="last")
        of_all[sequence] = cut
    return EmbeddingCollection(of_all, shared=shared)


@keras.utils.register_keras_serializable(package="tfhybrid")
class Interest(keras.layers.Layer):
    """Sums a sequence's embeddings, weighted by a network that also reads the candidate.

    From float `[batch, (length), dim]`, ragged, and candidates `[batch, dim]` to `[batch, dim]`.

    Args:
        units: Units of the network's layers, before the output layer.
        **options: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, units: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self._weigh = [keras.layers.Dense(width, activation="sigmoid") for width in units]
        self._weigh.append(keras.layers.Dense(1))

    def build(self, input_shape: Any) -> None:
        """Builds the network: it reads behaviour, candidate, their difference and product."""
        width = 4 * input_shape[1][-1]
        for layer in self._weigh:
            layer.build((None, width))
            width = layer.units
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Returns the weighted sum of each sample's sequence, `[batch, dim]`.

        Args:
            inputs: Sequences, float `[batch, (length), dim]`, and candidates, `[batch, dim]`.
        """
        sequence, candidates = inputs
        rows, samples = sequence.flat_values, sequence.value_rowids()
        candidate = tf.gather(candidates, samples)
        weight = tf.concat([rows, candidate, rows - candidate, rows * candidate], axis=1)
        for layer in self._weigh:
            weight = layer(weight)
        return tf.math.unsorted_segment_sum(weight * rows, samples, tf.shape(candidates)[0])

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns the spec of the sums: Keras 3 does not trace ragged tensors."""
        return keras.KerasTensor(inputs[1].shape, self.compute_dtype)
