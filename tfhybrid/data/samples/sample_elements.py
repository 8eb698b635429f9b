"""Conversion of tables of samples to the elements of a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.generated import generated
from tfhybrid.data.samples.ragged import Ragged

Labels = np.ndarray | dict[str, np.ndarray]
Element = tuple[dict[str, np.ndarray | tf.RaggedTensor], Labels]


def element(clicks: Clicks) -> Element:
    """Converts a table of b samples to `({feature: [b, length], dense: [b, width]}, label [b, 1])`.

    A ragged feature is a `tf.RaggedTensor` `[b, None]`. Several labels are a dictionary.
    """
    columns = {**clicks.features, **clicks.dense}
    return {name: _matrix(column) for name, column in columns.items()}, _labels(clicks, _matrix)


def dataset_of(
    elements: Callable[[], Iterator[Element]],
    example: Clicks,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of the batches that a Python iterator yields.

    Args:
        elements: Function that returns a new iterator over the batches, as `element` returns them.
            It is called at the start of each iteration of the dataset, on a thread of TensorFlow.
        example: Table whose columns have the names, types and widths of every batch; its samples
            are not used.
        batch_size: Number of samples in every batch; `None` (default) if it varies.

    Raises:
        tf.errors.InvalidArgumentError: During the iteration: `elements` or its iterator raised a
            `DataError` or another `ValueError`, or a batch does not fit `example` or `batch_size`.
        tf.errors.UnknownError: During the iteration: they raised an error of another type, such as
            `OSError`.
    """

    def spec(column: np.ndarray | Ragged) -> tf.TypeSpec:
        if isinstance(column, Ragged):
            return tf.RaggedTensorSpec([batch_size, None], tf.int64)
        return tf.TensorSpec([batch_size, _matrix(column).shape[1]], column.dtype)

    columns = {**example.features, **example.dense}
    signature = ({name: spec(column) for name, column in columns.items()}, _labels(example, spec))
    return generated(elements, signature)


def _labels(clicks: Clicks, convert: Callable[[np.ndarray], Any]) -> Any:
    labels = {name: convert(column) for name, column in clicks.labels.items()}
    return labels if isinstance(clicks.label, dict) else labels["label"]


def _matrix(column: np.ndarray | Ragged) -> np.ndarray | tf.RaggedTensor:
    if isinstance(column, Ragged):
        return tf.RaggedTensor.from_row_splits(column.values, column.splits, validate=False)
    return column[:, np.newaxis] if column.ndim == 1 else column
