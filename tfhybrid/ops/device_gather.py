"""Lookups that gather embeddings on a device.

The host reads the row of each distinct key once. The device receives these rows, and the position
of each key's row among them; it gathers the embeddings, and combines those of bags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid.ops._library import OPS
from tfhybrid.ops.lookup import (
    PLAIN_FORM,
    FeatureKeys,
    KeyNumbers,
    OutputForm,
    TableRef,
    counted,
    gradients_of_tables,
    reading_of,
    refuse_loops,
    widened_on_host,
)

tf.no_gradient("TfhybridDistinctRows")


def lookup_on_device(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    proxies: Sequence[tf.Tensor],
    *,
    form: OutputForm = PLAIN_FORM,
    training: bool | None = None,
    collection: int = 0,
) -> list[tf.Tensor]:
    """Reads the embeddings of all features, with the bits of `ops.lookup.lookup`.

    Only the last bits of bags may differ, if the device adds up in another order than the host.

    Args:
        tables: Table of each feature; features may share one.
        features: Keys of each feature; side by side, `[batch, ...]` or one bag per sample.
        proxies: Value of each feature's proxy variable, which gets the gradient.
        form: Form of the embeddings. Default `PLAIN_FORM`: one float32 tensor per feature.
        training: Whether the model trains; see `ops.lookup.lookup`.
        collection: Number by which `number_ahead` finds this lookup. Default 0: it does not.

    Returns:
        One tensor per feature on the current device: `keys.shape + [dim]`, or `[bags, dim]` with a
        combiner. Side by side, one tensor `[batch, width]`.

    Raises:
        tf.errors.OpError: When the op runs, a table is not open, rows cannot be fetched, or an
            earlier update failed.
    """
    features, given = counted(features), len(features)
    added = len(features) - given
    tables = [tables[0]] * added + list(tables)
    proxies = [proxies[0]] * added + list(proxies)
    by_sample = form.side_by_side and _fit_one_gather(tables, features)
    with tf.device("CPU:0"):
        outputs = OPS.tfhybrid_distinct_rows(
            proxies=[table.proxy for table in tables],
            keys=[feature.keys for feature in features],
            engine=tables[0].engine,
            tables=[table.name for table in tables],
            dims=[table.dim for table in tables],
            reading=reading_of(training),
            collection=collection,
            by_sample=by_sample,
            D=len({table.dim for table in tables}),
            T=len({table.name for table in tables}),
        )
    rows = _narrowed(tables, features, outputs.rows, form.dtype)
    if by_sample:
        embeddings = [_gathered_by_sample(features, rows[0], outputs.positions[0])]
    else:
        embeddings = _gathered(tables, features, rows, outputs.positions, form.side_by_side)
    embeddings = _with_gradients(
        tables,
        features,
        KeyNumbers(outputs.numbers, outputs.distinct),
        proxies,
        [tf.cast(embedding, form.dtype) for embedding in embeddings],
        side_by_side=form.side_by_side,
    )
    return embeddings if form.side_by_side else embeddings[added:]


def _narrowed(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    rows: Sequence[tf.Tensor],
    dtype: Any,
) -> list[tf.Tensor]:
    """Casts the rows of each dim to a smaller dtype on the host, where no bags need all bits."""
    if tf.as_dtype(dtype).size >= tf.float32.size:
        return list(rows)
    of_bags = {
        table.dim for table, feature in zip(tables, features, strict=True) if feature.combiner
    }
    with tf.device("CPU:0"):
        return [of_dim if of_dim.shape[1] in of_bags else tf.cast(of_dim, dtype) for of_dim in rows]


def _gathered(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    rows: Sequence[tf.Tensor],
    positions: Sequence[tf.Tensor],
    side_by_side: bool,
) -> list[tf.Tensor]:
    """Returns the embeddings of each feature, or all in one: a gather for all tables of one dim."""
    of_dims = {}
    for dim, of_dim, places in zip(
        dict.fromkeys(table.dim for table in tables), rows, positions, strict=True
    ):
        keys = [
            feature.keys
            for table, feature in zip(tables, features, strict=True)
            if table.dim == dim
        ]
        with tf.device("CPU:0"):  # keys are there
            sizes = tf.stack([tf.size(of_feature) for of_feature in keys])
        of_dims[dim] = iter(tf.split(tf.gather(of_dim, places), sizes))
    embeddings = []
    for table, feature in zip(tables, features, strict=True):
        with tf.device("CPU:0"):
            shape = tf.concat([tf.shape(feature.keys), [table.dim]], axis=0)
        embedding = tf.reshape(next(of_dims[table.dim]), shape)
        embedding = tf.ensure_shape(embedding, [*feature.keys.shape, table.dim])
        embeddings.append(feature.combine(embedding))
    if not side_by_side:
        return embeddings
    return [tf.concat([rows_by_sample(each) for each in embeddings], axis=1)]


def _fit_one_gather(tables: Sequence[TableRef], features: Sequence[FeatureKeys]) -> bool:
    """Returns whether one gather can write the embeddings of all features side by side."""
    return len({table.dim for table in tables}) == 1 and all(
        feature.splits is None and feature.ragged is None for feature in features
    )


def _gathered_by_sample(
    features: Sequence[FeatureKeys], rows: tf.Tensor, positions: tf.Tensor
) -> tf.Tensor:
    """Returns the embeddings of all features side by side, `[batch, width]`."""
    dim = rows.shape[1]
    with tf.device("CPU:0"):  # keys are there
        shapes = [tf.shape(feature.keys) for feature in features]
        width = dim * tf.add_n([tf.reduce_prod(shape[1:]) for shape in shapes])
        shape = tf.stack([shapes[0][0], width])
    of_samples = [feature.keys.shape[1:].num_elements() for feature in features]
    embeddings = tf.reshape(tf.gather(rows, positions), shape)
    static_width = None if None in of_samples else dim * sum(of_samples)
    return tf.ensure_shape(embeddings, [features[0].keys.shape[0], static_width])


def rows_by_sample(embedding: tf.Tensor) -> tf.Tensor:
    """Returns the embeddings of a feature, with all those of a sample in one row.

    Args:
        embedding: Embeddings `[batch, ..., dim]`.
    """
    width = embedding.shape[1:].num_elements()
    if width is None:
        width = tf.reduce_prod(tf.shape(embedding)[1:])
    return tf.reshape(embedding, [tf.shape(embedding)[0], width])


def _with_gradients(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    by_number: KeyNumbers,
    proxies: Sequence[tf.Tensor],
    embeddings: Sequence[tf.Tensor],
    *,
    side_by_side: bool,
) -> list[tf.Tensor]:
    """Returns the embeddings unchanged. Their gradients go to the proxies.

    TensorFlow's gradient of a gather would be one tensor per feature, with the rows of a key apart.
    """

    @tf.custom_gradient
    def carry(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor | None]]]:
        def gradient(*gradients: tf.Tensor) -> list[tf.Tensor | None]:
            refuse_loops(table.name for table in tables)
            wide = [widened_on_host(each) for each in gradients]
            slices = gradients_of_tables(
                tables, features, by_number, wide, side_by_side=side_by_side
            )
            return [*slices, *[None] * len(embeddings)]

        return [tf.identity(embedding) for embedding in inputs[len(proxies) :]], gradient

    return list(carry(*proxies, *embeddings))
