"""How layers read their tables: with the native op, or with a replacement for an export."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.ops import lookup as lookup_op
from tfhybrid.ops.device_gather import lookup_on_device, rows_by_sample
from tfhybrid.ops.lookup import PLAIN_FORM, FeatureKeys, OutputForm, TableRef
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
    form: OutputForm = PLAIN_FORM,
    device: str = "",
    training: Any = None,
    collection: int = 0,
) -> list[tf.Tensor]:
    """Reads the embeddings of all features, and combines the embeddings of bags.

    Args:
        proxies: Proxy of each feature's table; features may share one.
        features: Keys of each feature. Side by side they must be `[batch, ...]`, or a bag per
            sample.
        form: Form of the embeddings. Default `PLAIN_FORM`: one float32 tensor per feature.
        device: Device on which tables with `gather_on="device"` gather. Default `""`: the current
            one.
        training: Argument `training` of Keras: see `ops.lookup.lookup`; a tensor counts as `None`
            (default).
        collection: Number of the layer, if its keys may be numbered ahead. Default 0: no.

    Returns:
        `keys.shape + [dim]`, or `[bags, dim]`, one tensor per feature; or one,
        `[batch, width]`.

    Raises:
        tf.errors.OpError: When the op runs: a table is not open, an earlier update failed, or an
            owner of rows has died.
    """
    trains = bool(training) if isinstance(training, bool | int) else None
    replacement = _replacement.get()
    if replacement is not None:
        embeddings = [
            tf.cast(feature.combine(replacement(proxy.table, feature.keys)), form.dtype)
            for proxy, feature in zip(proxies, features, strict=True)
        ]
    else:
        gather_on = {proxy.table.config.gather_on for proxy in proxies}
        if len(gather_on) == 1:
            read = functools.partial(_on_device, device) if "device" in gather_on else _on_host
            return read(proxies, features, form=form, training=trains, collection=collection)
        apart = OutputForm(dtype=form.dtype)
        embeddings = _on_both(proxies, features, device, form=apart, training=trains)
    if not form.side_by_side:
        return embeddings
    return [tf.concat([rows_by_sample(embedding) for embedding in embeddings], axis=1)]


def _on_host(
    proxies: Sequence[TableProxy],
    features: Sequence[FeatureKeys],
    *,
    form: OutputForm,
    **options: Any,
) -> list[tf.Tensor]:
    refs = [_ref(proxy) for proxy in proxies]
    embeddings = lookup_op.lookup(refs, features, side_by_side=form.side_by_side, **options)
    return [lookup_op.cast_on_host(each, form.dtype) for each in embeddings]


def _on_device(
    device: str, proxies: Sequence[TableProxy], features: Sequence[FeatureKeys], **options: Any
) -> list[tf.Tensor]:
    refs = [proxy.table_ref for proxy in proxies]
    values = [tf.convert_to_tensor(proxy) for proxy in proxies]
    with tf.device(device or None):
        return lookup_on_device(refs, features, values, **options)


def _on_both(
    proxies: Sequence[TableProxy], features: Sequence[FeatureKeys], device: str, **options: Any
) -> list[tf.Tensor]:
    """Looks up the tables that gather on the device, and the others."""
    by_feature: dict[int, tf.Tensor] = {}
    on_device = functools.partial(_on_device, device)
    for gather_on, read in (("device", on_device), ("host", _on_host)):
        chosen = [
            at for at, proxy in enumerate(proxies) if proxy.table.config.gather_on == gather_on
        ]
        embeddings = read(
            [proxies[at] for at in chosen], [features[at] for at in chosen], **options
        )
        by_feature |= dict(zip(chosen, embeddings, strict=True))
    return [by_feature[at] for at in range(len(proxies))]


def _ref(proxy: TableProxy) -> TableRef:
    # The value is unused, but reading the variable registers it with the gradient tape.
    tf.convert_to_tensor(proxy)
    return proxy.table_ref
