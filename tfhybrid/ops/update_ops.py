"""The TensorFlow ops of an update, which consume the gradients of lookups."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfhybrid.ops._library import OPS
from tfhybrid.ops.lookup import TableRef, has_distinct_keys

# Largest norm of a reduced gradient. The largest float32 is 3.4e38, so thousands of squares, which
# optimizers add up, stay finite.
LARGEST_GRADIENT = 1e17


@dataclasses.dataclass(frozen=True)
class UpdateRef:
    """The identification, in ops, of an optimizer's update of some tables.

    Args:
        tables: The tables, each once.
        number: The update's number in the tables' engine.
        exchange: How gradients travel between hosts: `"leaders"`, `"owner"` or `"all_ranks"`.
        sharded: Whether hosts own different rows; then the engine exchanges gradients.
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
        """The attributes that identify the update in an op."""
        return {"engine": self.tables[0].engine, "update": self.number}


class StepNumbers(NamedTuple):
    """The numbers of a step, the same on all ranks.

    Args:
        learning_rates: float32 `[tables]`.
        dense_squares: float64, `square_sum` of the dense variables' gradients; used if gradients
            are clipped by global norm.
    """

    learning_rates: tf.Tensor
    dense_squares: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Contribution:
    """A rank's contribution to an update.

    Args:
        gradients: One per table: int64 keys `[n]` as indices, float32 values `[n, dim]`.
        samples: int64, the samples of the batch.
        skip: bool, whether no rank may apply the update, because a gradient is not finite.
        event_time: int64, time of the batch's latest event; `native.NO_TIME` if unknown.
        failure: string; if not empty, why this rank has no gradients.
    """

    gradients: Sequence[tf.IndexedSlices]
    samples: tf.Tensor
    skip: tf.Tensor
    event_time: tf.Tensor
    failure: tf.Tensor

    @property
    def inputs(self) -> dict[str, Any]:
        """Returns the inputs and attributes for an op."""
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
    """Returns "key K of table 'NAME' is ..." for the first unusable gradient, or "".

    A gradient is unusable if it is not finite, or so large that the square of a sum of `summands`
    gradients may not be finite.

    Args:
        update: The update.
        gradients: One per table.
        summands: How many gradients of a key an update adds up: those of ranks and micro-batches.
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
    """Keeps a micro-batch's gradients until this rank posts or packs the next ones.

    Args:
        update: Of which tables.
        gradients: One per table.
    """
    return OPS.tfhybrid_keep_gradients(
        proxies=update.proxies, **_batch(gradients), **update.attributes
    )


def pack_gradients(update: UpdateRef, contribution: Contribution) -> tf.Tensor:
    """Sums gradients of equal keys, and packs those of all tables into this rank's message.

    Returns:
        int64 `[words]`.
    """
    return OPS.tfhybrid_pack_gradients(**contribution.inputs, **update.attributes)


def apply_gathered(update: UpdateRef, messages: tf.Tensor, numbers: StepNumbers) -> tf.Operation:
    """Lets the leader apply the messages of all ranks; on other ranks, records that it will.

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
    """Merges the posts of this host's ranks; on the leader.

    Args:
        update: Of which tables.

    Returns:
        The host's message int64 `[words]`, or with `exchange="owner"` one share per host,
        concatenated; the lengths of the parts, int32.
    """
    return OPS.tfhybrid_merge_host(proxies=update.proxies, **update.attributes)


def merge_owned(update: UpdateRef, shares: tf.Tensor) -> tf.Tensor:
    """Merges the hosts' shares of the keys that this host owns; on the leader."""
    return OPS.tfhybrid_merge_owned(messages=shares, **update.attributes)


def stage_update(update: UpdateRef, messages: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Plans the update from the hosts' messages, and reserves space for it; on the leader.

    Returns:
        bool: whether all hosts must agree that they can apply it; uint8 `[n]`: why this host
        cannot, empty if it can.
    """
    return OPS.tfhybrid_stage_update(proxies=update.proxies, messages=messages, **update.attributes)


def commit_update(update: UpdateRef, complaints: tf.Tensor, numbers: StepNumbers) -> tf.Operation:
    """Applies the staged update, or tells all waiting ranks why it failed; on the leader.

    Args:
        update: Of which tables.
        complaints: uint8 `[n]`, the errors of all hosts.
        numbers: Of the step.
    """
    return OPS.tfhybrid_commit_update(
        proxies=update.proxies,
        complaints=complaints,
        **numbers._asdict(),
        **update.attributes,
    )


def square_sum(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the sum of squares of all tensors, float64, with the same bits on all ranks."""
    return OPS.tfhybrid_square_sum(gradients=[tf.cast(g, tf.float32) for g in gradients])


def clip_factor(update: UpdateRef) -> tf.Tensor:
    """Returns the factor by which clipping scaled the last update's gradients, float32.

    It waits until the update is applied on this host.
    """
    return OPS.tfhybrid_clip_factor(proxies=update.proxies, **update.attributes)


def keep_state(
    tables: Sequence[TableRef], step: tf.Tensor, state: Sequence[tf.Tensor]
) -> tf.Operation:
    """Keeps this rank's state in the store, for a restart from memory.

    Args:
        tables: The tables of the next update.
        step: int64 scalar, the step after which this is the state.
        state: Numeric tensors, always with the same shapes.
    """
    return OPS.tfhybrid_keep_state(
        proxies=[table.proxy for table in tables],
        step=step,
        state=list(state),
        engine=tables[0].engine,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
    )
