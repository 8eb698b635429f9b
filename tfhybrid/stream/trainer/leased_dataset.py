"""A stream's rows as a `tf.data.Dataset`, for `model.fit` and training loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from tfhybrid.data.samples.generated import generated
from tfhybrid.errors import ConfigError
from tfhybrid.stream.trainer.leases import Leases


def dataset(leases: Leases, *, features: Sequence[str], label: str) -> tf.data.Dataset:
    """Returns a dataset of batches from a trainer's leases.

    The same batch is yielded until `Leases.trained` is called, as the callback `Online` does. So no
    row is lost when Keras reads a batch to build the model. Do not shuffle, prefetch or batch this
    dataset. An error of `Leases.batch` reaches the consumer as an error of TensorFlow.

    Args:
        leases: Leases of this trainer.
        features: Names of the columns that are the model's inputs. Lists become ragged tensors.
        label: Name of the column of labels.

    Returns:
        A dataset of pairs: `{feature: tensor}` and the tensor of labels. It ends when `leases` has
            no more rows and does not wait for them; otherwise it blocks until there are rows.

    Raises:
        ConfigError: The stream has no such column; or a row may lack its value, and it is no list;
            or the label is a feature.

    Example:

    ```python
    model.fit(tfhybrid.stream.dataset(leases, features=["item"], label="label"), callbacks=...)
    ```
    """
    _check_columns(leases.schema, features, label)

    def batches() -> Iterator[tuple[dict[str, Any], Any]]:
        while (batch := leases.batch()) is not None:
            yield {name: tensor_of(batch[name]) for name in features}, tensor_of(batch[label])

    signature = (
        {name: _signature(leases.schema.field(name).type) for name in features},
        _signature(leases.schema.field(label).type),
    )
    result = generated(batches, signature)
    options = tf.data.Options()
    options.autotune.enabled = False
    # A batch prefetched before `Leases.trained` is called would repeat the one in training.
    options.experimental_optimization.inject_prefetch = False
    return result.with_options(options)


def check_names(schema: pa.Schema, names: Iterable[str], subject: str) -> None:
    """Checks that names are columns of a stream.

    Args:
        schema: Schema of the stream.
        names: Names of columns.
        subject: Beginning of the error's text, in the plural.

    Raises:
        ConfigError: A name is no column.
    """
    missing = sorted(set(names) - set(schema.names))
    if missing:
        raise ConfigError(
            f"{subject} must be columns of the stream. Its columns are {schema.names}. "
            f"Received: {missing}"
        )


def _check_columns(schema: pa.Schema, features: Sequence[str], label: str) -> None:
    check_names(schema, (*features, label), "features and label")
    if label in features:
        raise ConfigError(
            "The label must not be a feature, because it tells the model the answer. "
            f"Received: label={label!r}, features={list(features)}"
        )
    for name in (*features, label):
        _check_complete(schema.field(name))


def _check_complete(field: pa.Field) -> None:
    if field.nullable and not pa.types.is_list(field.type):
        raise ConfigError(
            f"Column {field.name!r} must have a value in each row, because a tensor has no missing "
            f"ones. Declare it in stream.yaml as {field.type}, without ?, and rows without a value "
            f"are bad rows; or as {{type: {field.type}, missing: VALUE}}. "
            f"Received: {field.type}?"
        )


def _signature(dtype: pa.DataType) -> Any:
    if pa.types.is_list(dtype):
        return tf.RaggedTensorSpec([None, None], _tf_type(dtype.value_type), ragged_rank=1)
    return tf.TensorSpec([None], _tf_type(dtype))


def _tf_type(dtype: pa.DataType) -> tf.DType:
    if pa.types.is_string(dtype):
        return tf.string
    return tf.as_dtype(pa.array([], dtype).to_numpy(zero_copy_only=False).dtype)


def tensor_of(column: pa.Array) -> Any:
    """Returns an Arrow column as a tensor, `[n]`; a column of lists as a ragged tensor.

    Args:
        column: Numbers, strings or lists of them. A null list is an empty one.
    """
    if pa.types.is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        return tf.RaggedTensor.from_row_lengths(
            tensor_of(column.flatten()), lengths.to_numpy(zero_copy_only=False).astype("int64")
        )
    if pa.types.is_string(column.type):
        return tf.constant(column.to_pylist(), tf.string)
    return tf.constant(column.to_numpy(zero_copy_only=False))
