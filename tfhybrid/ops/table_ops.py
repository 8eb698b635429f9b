"""The TensorFlow ops of custom_ops/tf: lookup, its gradient, and two ways to the leader."""

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


@dataclasses.dataclass(frozen=True)
class UpdateRef:
    """An optimizer's updates as an op names them.

    Args:
        update: Tells them from those of others; equal on all ranks.
        hosts: The host of each rank.
        reduction: `"frequency"`, `"sum"` or `"mean"`.
    """

    update: str
    hosts: tuple[int, ...]
    reduction: str


def lookup(
    tables: Sequence[TableRef], keys: Sequence[tf.Tensor], *, side_by_side: bool = False
) -> list[tf.Tensor]:
    """Reads the embeddings of all features in one op.

    Args:
        tables: The table of each feature; features may share one.
        keys: int64, any shape, one tensor per feature; side by side `[batch, ...]`.
        side_by_side: Whether all features of a sample lie in one row of one tensor.

    Returns:
        float32 `keys[i].shape + [tables[i].dim]`, one tensor per feature; or one, `[batch, width]`.
    """
    return _ops.tfhybrid_lookup(
        proxies=[table.proxy for table in tables],
        keys=list(keys),
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
        side_by_side=side_by_side,
        M=1 if side_by_side else len(keys),
    )


@tf.RegisterGradient("TfhybridLookup")
def _lookup_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.IndexedSlices | None]:
    """As for `tf.nn.embedding_lookup`, with the gradients of equal keys summed already."""
    dims = op.get_attr("dims")
    features = len(dims)
    names = [name.decode() for name in op.get_attr("tables")]
    # The first feature of each table carries what all of its features say.
    firsts = {name: position for position, name in reversed(list(enumerate(names)))}
    tables = sorted(firsts, key=firsts.__getitem__)
    distinct, sums = _ops.tfhybrid_sum_gradients(
        keys=list(op.inputs[features:]),
        gradients=list(gradients),
        dims=dims,
        table_of=[tables.index(name) for name in names],
        side_by_side=op.get_attr("side_by_side"),
        T=len(tables),
    )
    slices: list[tf.IndexedSlices | None] = [None] * (2 * features)
    for table, keys, values in zip(tables, distinct, sums, strict=True):
        dim = dims[firsts[table]]
        slices[firsts[table]] = tf.IndexedSlices(values, keys, tf.constant([0, dim], tf.int64))
    return slices


def _has_distinct_keys(slices: tf.IndexedSlices) -> bool:
    """Whether the keys come straight from a lookup's gradient, whatever was done to the values."""
    # Where a table was looked up twice, the tape has laid two gradients end to end.
    return not tf.executing_eagerly() and slices.indices.op.type == "TfhybridSumGradients"


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
        distinct=[_has_distinct_keys(slices) for slices in gradients],
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
    )


def apply_gathered(
    tables: Sequence[TableRef], messages: tf.Tensor, learning_rates: tf.Tensor, update: UpdateRef
) -> tf.Operation:
    """Lets the leader apply the messages of all ranks; elsewhere notes that it will.

    Args:
        tables: The tables, each once, in the order of the messages.
        messages: int64 `[words]`, the messages of all ranks end to end.
        learning_rates: float32 `[tables]`.
        update: Whose gradients these are.
    """
    return _ops.tfhybrid_apply_gathered(
        proxies=[table.proxy for table in tables],
        messages=messages,
        learning_rates=learning_rates,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
        **dataclasses.asdict(update),
    )


def post_gradients(
    tables: Sequence[TableRef],
    gradients: Sequence[tf.IndexedSlices],
    learning_rates: tf.Tensor,
    update: UpdateRef,
) -> tf.Operation:
    """Posts this rank's gradients to the leader of its host, through shared memory.

    Args:
        tables: The tables, each once.
        gradients: One per table, as for `pack_gradients`.
        learning_rates: float32 `[tables]`.
        update: Whose gradients these are; all ranks are on one host.
    """
    return _ops.tfhybrid_post_gradients(
        proxies=[table.proxy for table in tables],
        keys=[tf.cast(slices.indices, tf.int64) for slices in gradients],
        gradients=[tf.cast(slices.values, tf.float32) for slices in gradients],
        distinct=[_has_distinct_keys(slices) for slices in gradients],
        learning_rates=learning_rates,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
        **dataclasses.asdict(update),
    )
