"""How layers read their tables: with the native op, or with a replacement for an export."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.ops import lookup as lookup_op
from tfhybrid.ops.device_lookup import DeviceRows
from tfhybrid.ops.lookup import FeatureKeys, TableRef
from tfhybrid.store import Table

# Maps a table and int64 keys of any shape to float32 `keys.shape + [dim]`.
TableLookup = Callable[[Table, tf.Tensor], tf.Tensor]

_replacement: contextvars.ContextVar[TableLookup | None] = contextvars.ContextVar(
    "replacement", default=None
)


@contextlib.contextmanager
def replaced_by(replacement: TableLookup) -> Iterator[None]:
    """Makes all layers of this thread read tables with another function than the native op.

    Graphs traced inside the block contain neither the native op nor table proxies.

    Args:
        replacement: Function that is called for every feature with its table and keys.

    Example:

    ```python
    with replaced_by(lambda table, keys: tf.zeros([*keys.shape, table.dim])):
        graph = tf.function(model).get_concrete_function(inputs)
    ```
    """
    token = _replacement.set(replacement)
    try:
        yield
    finally:
        _replacement.reset(token)


def lookup(
    proxies: Sequence[TableProxy],
    features: Sequence[FeatureKeys],
    *,
    side_by_side: bool = False,
    on_device: DeviceRows | None = None,
    training: Any = None,
    collection: int = 0,
) -> list[tf.Tensor]:
    """Reads the embeddings of all features, and combines the embeddings of bags.

    Args:
        proxies: Proxy of each feature's table; features may share one.
        features: Keys of each feature. Side by side they must be `[batch, ...]`, or a bag per
            sample.
        side_by_side: Whether to return one tensor, with all features of a sample in one row.
        on_device: Variables of tables with `fast_tier="device"`, or `None` without such tables.
        training: Argument `training` of Keras: see `ops.lookup.lookup`; a tensor counts as `None`
            (default). On a device, only False is outside of training, where keys without a row
            read what their table says.
        collection: Number of the layer, if its keys may be numbered ahead. Default 0: no.

    Returns:
        float32 `keys.shape + [dim]`, or `[bags, dim]`, one tensor per feature; or one,
        `[batch, width]`.

    Raises:
        tf.errors.OpError: When the op runs: a table is not open, an earlier update failed, or an
            owner of rows has died.
    """
    trains = bool(training) if isinstance(training, bool | int) else None
    replacement = _replacement.get()
    if replacement is not None:
        embeddings = [
            feature.combine(replacement(proxy.table, feature.keys))
            for proxy, feature in zip(proxies, features, strict=True)
        ]
    elif on_device is not None:
        embeddings = _of_tiers(proxies, features, on_device, trains)
    else:
        refs = [_ref(proxy) for proxy in proxies]
        return lookup_op.lookup(
            refs, features, side_by_side=side_by_side, training=trains, collection=collection
        )
    if not side_by_side:
        return embeddings
    return [tf.concat([_one_row_a_sample(embedding) for embedding in embeddings], axis=1)]


def _of_tiers(
    proxies: Sequence[TableProxy],
    features: Sequence[FeatureKeys],
    on_device: DeviceRows,
    trains: bool | None,
) -> list[tf.Tensor]:
    """Looks up each table where its fast tier is."""
    by_feature: dict[int, tf.Tensor] = {}
    for there in (True, False):
        chosen = [
            at for at, proxy in enumerate(proxies) if (proxy.table.name in on_device) is there
        ]
        if not chosen:
            continue
        refs = [_ref(proxies[at]) for at in chosen]
        keys = [features[at] for at in chosen]
        if there:
            values = [tf.convert_to_tensor(proxies[at]) for at in chosen]
            embeddings = on_device.lookup(refs, keys, values, outside=trains is False)
        else:
            embeddings = lookup_op.lookup(refs, keys, training=trains)
        by_feature |= dict(zip(chosen, embeddings, strict=True))
    return [by_feature[at] for at in range(len(proxies))]


def _ref(proxy: TableProxy) -> TableRef:
    # The value is unused, but reading the variable registers it with the gradient tape.
    tf.convert_to_tensor(proxy)
    return proxy.table_ref


def _one_row_a_sample(embedding: tf.Tensor) -> tf.Tensor:
    width = embedding.shape[1:].num_elements()
    if width is None:
        width = tf.reduce_prod(tf.shape(embedding)[1:])
    return tf.reshape(embedding, [tf.shape(embedding)[0], width])
