"""The TensorFlow ops of an update: what becomes of the gradients of lookups."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfhybrid.ops._library import OPS
from tfhybrid.ops.lookup import TableRef, has_distinct_keys

# What the norm of a reduced gradient may be: the largest float32 is 3.4e38, so that thousands of
# its squares, which optimizers add up, are finite.
LARGEST_GRADIENT = 1e17


@dataclasses.dataclass(frozen=True)
class UpdateRef:
    """An optimizer's updates of some tables as an op names them.

    Args:
        tables: The tables, each once.
        number: Of the update in the tables' engine.
        exchange: How gradients travel between hosts: `"leaders"`, `"owner"` or `"all_ranks"`.
        sharded: Whether hosts own rows that others have not; then the engine exchanges.
    """

    tables: tuple[TableRef, ...]
    number: int
    exchange: str
    sharded: bool

    @property
    def proxies(self) -> list[tf.Tensor]:
        """The tables' handles."""
        return [table.proxy for table in self.tables]

    @property
    def attributes(self) -> dict[str, int]:
        """By which an op names the update."""
        return {"engine": self.tables[0].engine, "update": self.number}


class StepNumbers(NamedTuple):
    """The numbers of a step, the same on all ranks.

    Args:
        learning_rates: float32 `[tables]`.
        dense_squares: float64, of the dense variables' gradients as `square_sum` adds them up; read
            where gradients are clipped by global norm.
    """

    learning_rates: tf.Tensor
    dense_squares: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Contribution:
    """What a rank brings to an update.

    Args:
        gradients: One per table: int64 keys `[n]` as indices, float32 values `[n, dim]`.
        samples: int64, of the batch.
        skip: bool, whether no rank shall apply the update, because a gradient is not finite.
        event_time: int64, of the batch's latest event; `native.NO_TIME` where none is known.
        failure: string; if not empty, why this rank has no gradients.
    """

    gradients: Sequence[tf.IndexedSlices]
    samples: tf.Tensor
    skip: tf.Tensor
    event_time: tf.Tensor
    failure: tf.Tensor

    @property
    def inputs(self) -> dict[str, Any]:
        """As inputs and attributes of an op."""
        return {
            **_batch(self.gradients),
            "samples": self.samples,
            "skip": self.skip,
            "event_time": self.event_time,
            "failure": self.failure,
            "distinct": [has_distinct_keys(slices) for slices in self.gradients],
        }


def _batch(gradients: Sequence[tf.IndexedSlices]) -> dict[str, list[tf.Tensor]]:
    return {
        "keys": [tf.cast(slices.indices, tf.int64) for slices in gradients],
        "gradients": [tf.cast(slices.values, tf.float32) for slices in gradients],
    }


def find_nonfinite(
    update: UpdateRef, gradients: Sequence[tf.IndexedSlices], summands: int
) -> tf.Tensor:
    """Returns "key K of table 'NAME' is ..." for the first gradient that cannot be used, or "".

    That is one which is not finite, or so large that the sum of as many may have a square which is
    not.

    Args:
        update: Of which tables.
        gradients: One per table.
        summands: How many gradients of a key an update adds up: of ranks and micro-batches.
    """
    limits = [LARGEST_GRADIENT / summands / math.sqrt(table.dim) for table in update.tables]
    return OPS.tfhybrid_find_nonfinite(
        **_batch(gradients),
        distinct=[has_distinct_keys(slices) for slices in gradients],
        limits=limits,
        tables=[table.name for table in update.tables],
        dims=[table.dim for table in update.tables],
    )


def keep_gradients(update: UpdateRef, gradients: Sequence[tf.IndexedSlices]) -> tf.Operation:
    """Keeps the gradients of a micro-batch until this rank posts or packs the next.

    Args:
        update: Of which tables.
        gradients: One per table.
    """
    return OPS.tfhybrid_keep_gradients(
        proxies=update.proxies, **_batch(gradients), **update.attributes
    )


def pack_gradients(update: UpdateRef, contribution: Contribution) -> tf.Tensor:
    """Sums gradients of equal keys and packs those of all tables into this rank's message.

    Returns:
        int64 `[words]`.
    """
    return OPS.tfhybrid_pack_gradients(**contribution.inputs, **update.attributes)


def apply_gathered(update: UpdateRef, messages: tf.Tensor, numbers: StepNumbers) -> tf.Operation:
    """Lets the leader apply the messages of all ranks; elsewhere notes that it will.

    Args:
        update: Of which tables.
        messages: int64 `[words]`, the messages of all ranks end to end.
        numbers: Of the step.
    """
    return OPS.tfhybrid_apply_gathered(
        proxies=update.proxies,
        messages=messages,
        **numbers._asdict(),
        **update.attributes,
    )


def post_gradients(
    update: UpdateRef, contribution: Contribution, numbers: StepNumbers
) -> tf.Operation:
    """Posts this rank's gradients to the leader of its host, through shared memory.

    Args:
        update: Of which tables.
        contribution: What this rank brings.
        numbers: Of the step.
    """
    return OPS.tfhybrid_post_gradients(
        proxies=update.proxies,
        **numbers._asdict(),
        **contribution.inputs,
        **update.attributes,
    )


def merge_host(update: UpdateRef) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges what the ranks of this host posted; on the leader.

    Args:
        update: Of which tables.

    Returns:
        The host's message int64 `[words]`, whole or, with `exchange="owner"`, in one share per
        host; the lengths of what it is made of, int32.
    """
    return OPS.tfhybrid_merge_host(proxies=update.proxies, **update.attributes)


def merge_owned(update: UpdateRef, shares: tf.Tensor) -> tf.Tensor:
    """Merges the hosts' shares of the keys that this host owns; on the leader."""
    return OPS.tfhybrid_merge_owned(shares=shares, **update.attributes)


def stage_update(update: UpdateRef, messages: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Plans the update that the hosts' messages say, and makes room for it; on the leader.

    Returns:
        bool: whether hosts must be asked if all can apply it; uint8 `[n]`: why this one cannot, or
        nothing.
    """
    return OPS.tfhybrid_stage_update(proxies=update.proxies, messages=messages, **update.attributes)


def commit_update(update: UpdateRef, complaints: tf.Tensor, numbers: StepNumbers) -> tf.Operation:
    """Applies what was staged, or tells all who wait why it will not come; on the leader.

    Args:
        update: Of which tables.
        complaints: uint8 `[n]`, those of all hosts.
        numbers: Of the step.
    """
    return OPS.tfhybrid_commit_update(
        proxies=update.proxies,
        complaints=complaints,
        **numbers._asdict(),
        **update.attributes,
    )


def square_sum(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the sum of the squares of all tensors, float64, the same bits on all ranks."""
    return OPS.tfhybrid_square_sum(gradients=[tf.cast(g, tf.float32) for g in gradients])


def clip_factor(update: UpdateRef) -> tf.Tensor:
    """Returns what clipping multiplied the gradients of the last update by, float32.

    It waits until that is applied on this host.
    """
    return OPS.tfhybrid_clip_factor(proxies=update.proxies, **update.attributes)


def keep_state(
    tables: Sequence[TableRef], step: tf.Tensor, state: Sequence[tf.Tensor]
) -> tf.Operation:
    """Keeps this rank's state in the store, for a restart from memory.

    Args:
        tables: The tables of the update that is posted next.
        step: int64 scalar, the step after which this is the state.
        state: Tensors of plain numbers, always of the same shapes.
    """
    return OPS.tfhybrid_keep_state(
        proxies=[table.proxy for table in tables],
        step=step,
        state=list(state),
        engine=tables[0].engine,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
    )
