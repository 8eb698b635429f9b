"""Scores of candidate keys against vectors of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError

# Maps candidates, the number of samples and `training` to embeddings, `candidates.shape + [dim]`.
_Read = Callable[[tf.Tensor, tf.Tensor, Any], tf.Tensor]


class Scores(keras.layers.Layer):
    """Layer that returns the dot products of vectors and of the embeddings of candidate keys.

    The gradient of the embeddings carries the number of vectors as that of the samples, whatever
    the number of candidates.

    Args:
        embedding: Layer with the table, so that its variables are also those of this layer.
        read: Function that reads embeddings of candidates.
        dim: Length of an embedding.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, embedding: Any, read: _Read, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False
        self.supports_masking = True  # that of the vectors
        self._embedding = embedding
        self._read = read
        self._dim = dim

    def call(self, vectors: tf.Tensor, candidates: tf.Tensor, training: Any = None) -> tf.Tensor:
        """Returns the scores, `[batch, candidates]`.

        Args:
            vectors: Vectors, `[batch, dim]` or `[batch, length, dim]`.
            candidates: Keys for all samples, `[candidates]`, or for each vector, `[batch,
                candidates]` or `[batch, length, candidates]`.
            training: Whether the model trains; Keras passes it.
        """
        vectors = tf.convert_to_tensor(vectors)
        candidates = tf.convert_to_tensor(candidates)  # Keras 2 converts the first argument alone
        self._shape_of(vectors, candidates)
        samples = tf.shape(vectors, tf.int64)[0]
        embeddings = tf.cast(self._read(candidates, samples, training), vectors.dtype)
        if candidates.shape.rank == 1:
            return tf.linalg.matmul(vectors, embeddings, transpose_b=True)
        # TensorFlow would repeat one list, or one vector, for all others.
        check = tf.debugging.assert_equal(
            tf.shape(candidates)[:-1],
            tf.shape(vectors)[:-1],
            "There must be one list of candidates for each vector. Received: shapes",
        )
        with tf.control_dependencies([] if check is None else [check]):
            return tf.linalg.matvec(embeddings, vectors)

    def compute_output_spec(self, vectors: Any, candidates: Any, training: Any = None) -> Any:
        """Returns shape and dtype of the output of `call`, as `keras.KerasTensor`."""
        return keras.KerasTensor(self._shape_of(vectors, candidates), self.compute_dtype)

    def _shape_of(self, vectors: Any, candidates: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores, and refuses shapes that do not belong together."""
        rank, of_candidates = len(vectors.shape), len(candidates.shape)
        if rank < 2 or vectors.shape[-1] != self._dim or of_candidates not in (1, rank):
            raise ConfigError(
                f"Vectors must be [batch, {self._dim}] or [batch, length, {self._dim}], and "
                "candidates [candidates], or one list for each vector. "
                f"Received: vectors {tuple(vectors.shape)}, candidates {tuple(candidates.shape)}"
            )
        return (*vectors.shape[:-1], candidates.shape[-1])


def dense_candidates(candidates: Any) -> Any:
    """Returns candidates as a tensor if they are a list.

    Args:
        candidates: Keys: a list, an array, or a tensor of any kind, which may be symbolic.

    Raises:
        ConfigError: They are ragged or sparse.
    """
    is_symbolic = any(getattr(candidates, kind, False) for kind in ("ragged", "sparse"))
    if is_symbolic or isinstance(candidates, tf.RaggedTensor | tf.SparseTensor):
        raise ConfigError(
            "Candidates must be a dense tensor. With mask_key, lists of different lengths can be "
            f"padded: candidates.to_tensor(mask_key). Received: {candidates}"
        )
    return candidates if hasattr(candidates, "dtype") else tf.convert_to_tensor(candidates)
