"""DeepFM in plain Keras, whose gradients Horovod averages: `models.deepfm`, with Keras's tables."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from examples.click_training import Recipe
from tfhybrid.models.fields import PairwiseInteractions, Sum, flat, side_by_side
from tfhybrid.models.tower import tower


class HorovodModel(keras.Model):
    """Keras model whose step averages gradients over all ranks. A rank has all tables."""

    def train_step(self, data: tuple[Any, Any]) -> dict[str, tf.Tensor]:
        """Trains on a batch and returns its loss."""
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, labels, self(inputs, training=True))
        weights = self.trainable_variables
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        self.optimizer.apply(hvd.grouped_allreduce(gradients), weights)
        return {"loss": loss}


def compiled_plain(rows: dict[str, int], recipe: Recipe) -> keras.Model:
    """Builds the model of a recipe that updates all rows at every step.

    Args:
        rows: Number of rows of each feature.
        recipe: Settings of the model and of its training.
    """
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in rows}
    tables = [
        keras.layers.Embedding(
            count,
            recipe.dim + 1,  # the last column is the first-order weight
            embeddings_initializer=keras.initializers.RandomNormal(stddev=recipe.stddev),
            embeddings_regularizer=keras.regularizers.L2(recipe.penalty),
        )(inputs[name])
        for name, count in rows.items()
    ]
    fields = side_by_side(tables)
    embeddings = fields[..., :-1]
    deep = tower(
        flat(embeddings),
        hidden=recipe.hidden,
        dropout=recipe.dropout,
        batch_norm=recipe.batch_norm,
    )
    first_order = Sum()(fields[..., -1:])
    logits = keras.layers.Dense(1)(deep) + first_order + PairwiseInteractions()(embeddings)
    model = HorovodModel(inputs, logits)
    model.compile(
        optimizer=keras.optimizers.Adam(recipe.dense_rate, global_clipnorm=recipe.clip),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model
