"""Tables of samples as the elements of a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tfhybrid.data.clicks import Clicks


def element(clicks: Clicks) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns `({feature: [b, length], dense column: [b, width]}, label [b, 1])`."""
    columns = {**clicks.features, **clicks.dense}
    return {name: _matrix(column) for name, column in columns.items()}, _matrix(clicks.label)


def dataset_of(
    elements: Callable[[], Iterator[tuple[dict[str, np.ndarray], np.ndarray]]],
    example: Clicks,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Returns the dataset of what `elements()` yields, typed as the columns of `example` are."""

    def spec(column: np.ndarray) -> tf.TensorSpec:
        return tf.TensorSpec([batch_size, _matrix(column).shape[1]], column.dtype)

    columns = {**example.features, **example.dense}
    signature = ({name: spec(column) for name, column in columns.items()}, spec(example.label))
    return tf.data.Dataset.from_generator(elements, output_signature=signature)


def _matrix(column: np.ndarray) -> np.ndarray:
    return column[:, np.newaxis] if column.ndim == 1 else column
