"""The keys of one feature as the ops take them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class FeatureKeys:
    """The keys of a feature, and where it has a combiner, how they fall into bags.

    Args:
        keys: int64, of any shape; of bags `[n]`, bag after bag.
        combiner: `"sum"`, `"mean"` or `"sqrtn"`; `""` for an embedding per key.
        splits: int64 `[bags + 1]`: bag b has `keys[splits[b]:splits[b + 1]]`.
        weights: float32 `[n]`, or `None` for 1.
        ragged: Keys without a combiner as they came, where their embeddings shall be ragged too.
    """

    keys: tf.Tensor
    combiner: str = ""
    splits: tf.Tensor | None = None
    weights: tf.Tensor | None = None
    ragged: tf.RaggedTensor | None = None

    def restore(self, embeddings: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """Returns embeddings in the shape that the keys came in."""
        return embeddings if self.ragged is None else self.ragged.with_flat_values(embeddings)

    def combine(self, embeddings: tf.Tensor) -> tf.Tensor:
        """Combines the embeddings of the keys with TensorFlow's own ops, as the lookup op does.

        Args:
            embeddings: float32 `keys.shape + [dim]`.

        Returns:
            float32 `[bags, dim]`; without a combiner what was given.
        """
        if self.splits is None:
            return embeddings
        bag = tf.ragged.row_splits_to_segment_ids(self.splits)
        bags = tf.size(self.splits, tf.int64) - 1
        weights = tf.ones(tf.shape(self.keys)) if self.weights is None else self.weights
        total = tf.math.unsorted_segment_sum(embeddings * weights[:, tf.newaxis], bag, bags)
        if self.combiner == "sum":
            return total
        if self.combiner == "mean":
            divisor = tf.math.unsorted_segment_sum(weights, bag, bags)
        else:
            divisor = tf.sqrt(tf.math.unsorted_segment_sum(weights**2, bag, bags))
        return tf.math.divide_no_nan(total, divisor[:, tf.newaxis])
