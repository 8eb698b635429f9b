"""The TensorFlow ops of custom_ops/tf: lookup, and the two halves of an update."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfhybrid.ops._abi import check_build

check_build()
_ops = tf.load_op_library(str(Path(__file__).parent / "libtfhybrid_ops.so"))


@dataclasses.dataclass(frozen=True)
class TableRef:
    """A table as an op names it.

    Args:
        name: The table's name in the process's store.
        dim: Its dim.
        proxy: The handle of its proxy variable, which carries gradients and orders ops.
    """

    name: str
    dim: int
    proxy: tf.Tensor


def lookup(tables: Sequence[TableRef], keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads the embeddings of all features in one op.

    Args:
        tables: The table of each feature; features may share one.
        keys: int64, any shape, one tensor per feature.

    Returns:
        float32 `keys[i].shape + [tables[i].dim]`, one tensor per feature.
    """
    return _ops.tfhybrid_lookup(
        proxies=[table.proxy for table in tables],
        keys=list(keys),
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
    )


@tf.RegisterGradient("TfhybridLookup")
def _lookup_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.IndexedSlices | None]:
    """As for `tf.nn.embedding_lookup`: the keys and the output's gradient, unchanged."""
    features = len(gradients)
    dims = op.get_attr("dims")
    slices = []
    for keys, gradient, dim in zip(op.inputs[features:], gradients, dims, strict=True):
        slices.append(
            tf.IndexedSlices(
                values=tf.reshape(gradient, [-1, dim]),
                indices=tf.reshape(keys, [-1]),
                dense_shape=tf.constant([0, dim], tf.int64),
            )
        )
    return [*slices, *[None] * features]


def pack_gradients(tables: Sequence[TableRef], gradients: Sequence[tf.IndexedSlices]) -> tf.Tensor:
    """Sums gradients of equal keys and packs those of all tables into this rank's message.

    Args:
        tables: The tables, each once.
        gradients: One per table: int64 keys `[n]` as indices, float32 values `[n, dim]`.

    Returns:
        int64 `[words]`.
    """
    return _ops.tfhybrid_pack_gradients(
        keys=[tf.cast(slices.indices, tf.int64) for slices in gradients],
        gradients=[tf.cast(slices.values, tf.float32) for slices in gradients],
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
    )


def update(
    tables: Sequence[TableRef],
    messages: tf.Tensor,
    learning_rates: tf.Tensor,
    *,
    hosts: Sequence[int],
    reduction: str,
) -> tf.Operation:
    """Applies the messages of all ranks on the leader; elsewhere notes that it will.

    Args:
        tables: The tables, each once, in the order of the messages.
        messages: int64 `[words]`, the messages of all ranks end to end.
        learning_rates: float32 `[tables]`.
        hosts: The host of each rank.
        reduction: `"frequency"`, `"sum"` or `"mean"`.
    """
    return _ops.tfhybrid_update(
        proxies=[table.proxy for table in tables],
        messages=messages,
        learning_rates=learning_rates,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
        hosts=list(hosts),
        reduction=reduction,
    )
