"""Tables of samples as the elements of a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tfhybrid.data.clicks import Clicks
from tfhybrid.data.ragged import Ragged

Element = tuple[dict[str, np.ndarray | tf.RaggedTensor], np.ndarray]


def element(clicks: Clicks) -> Element:
    """Returns `({feature: [b, length], dense column: [b, width]}, label [b, 1])`.

    A ragged feature is a `tf.RaggedTensor` `[b, None]`.
    """
    columns = {**clicks.features, **clicks.dense}
    return {name: _matrix(column) for name, column in columns.items()}, _matrix(clicks.label)


def dataset_of(
    elements: Callable[[], Iterator[Element]],
    example: Clicks,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Returns the dataset of what `elements()` yields, typed as the columns of `example` are."""

    def spec(column: np.ndarray | Ragged) -> tf.TypeSpec:
        if isinstance(column, Ragged):
            return tf.RaggedTensorSpec([batch_size, None], tf.int64)
        return tf.TensorSpec([batch_size, _matrix(column).shape[1]], column.dtype)

    columns = {**example.features, **example.dense}
    signature = ({name: spec(column) for name, column in columns.items()}, spec(example.label))
    return tf.data.Dataset.from_generator(elements, output_signature=signature)


def _matrix(column: np.ndarray | Ragged) -> np.ndarray | tf.RaggedTensor:
    if isinstance(column, Ragged):
        return tf.RaggedTensor.from_row_splits(column.values, column.splits, validate=False)
    return column[:, np.newaxis] if column.ndim == 1 else column
