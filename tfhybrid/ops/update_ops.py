"""TensorFlow ops of an update, which consume the gradients of lookups."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfhybrid.ops._library import OPS
from tfhybrid.ops.lookup import TableRef, has_distinct_keys

# Largest norm of a reduced gradient. Optimizers add up its squares: the sum of thousands stays
# below the largest float32, 3.4e38.
LARGEST_GRADIENT = 1e17


@dataclasses.dataclass(frozen=True)
class UpdateRef:
    """Reference by which ops find an optimizer's update of some tables.

    Args:
        tables: Tables, each once.
        number: Number that the engine gave the update when it was opened; the same in all steps.
        exchange: Method of sending gradients between hosts: `"leaders"`, `"owner"` or
            `"all_ranks"`.
        sharded: Whether hosts own different rows. With `"leaders"` and `"owner"`, the engine then
            sends the gradients to the owners, and Horovod does not exchange them.
    """

    tables: tuple[TableRef, ...]
    number: int
    exchange: str
    sharded: bool

    @property
    def proxies(self) -> list[tf.Tensor]:
        """Handles of the tables' proxy variables."""
        return [table.proxy for table in self.tables]

    @property
    def attributes(self) -> dict[str, int]:
        """Arguments that name the update to an op: numbers of the `engine` and of the `update`."""
        return {"engine": self.tables[0].engine, "update": self.number}


class StepNumbers(NamedTuple):
    """Numbers of a step that are the same on all ranks.

    Args:
        learning_rates: Learning rate of each table, float32 `[tables]`.
        dense_squares: `square_sum` of the dense variables' gradients, float64; only used if
            gradients are clipped by global norm.
    """

    learning_rates: tf.Tensor
    dense_squares: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Contribution:
    """A rank's contribution to an update.

    Args:
        gradients: Gradient of each table: int64 keys `[n]` as indices, float32 values `[n, dim]`.
        samples: Number of samples in the batch, int64.
        skip: Whether a gradient is not finite, bool; no rank then applies the update.
        event_time: Time of the batch's latest event, int64; `native.NO_TIME` if unknown.
        failure: Reason why this rank has no gradients, string; empty if it has.
    """

    gradients: Sequence[tf.IndexedSlices]
    samples: tf.Tensor
    skip: tf.Tensor
    event_time: tf.Tensor
    failure: tf.Tensor

    @property
    def inputs(self) -> dict[str, Any]:
        """Arguments of the ops that take a contribution, by name, such as `gradients`."""
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
    """Returns a message for the first unusable gradient, "key K of table 'NAME' is ...", or "".

    A gradient is unusable if it is not finite, or so large that the square of a sum of `summands`
    gradients may not be finite.

    Args:
        update: Update that is to apply the gradients.
        gradients: Gradient of each table.
        summands: Number of gradients that an update adds up for a key: ranks times micro-batches.
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
        update: Update that is to apply the gradients.
        gradients: Gradient of each table.

    Returns:
        The op, on which the step must depend.

    Raises:
        tf.errors.OpError: When the op runs, the job has ended.
    """
    return OPS.tfhybrid_keep_gradients(
        proxies=update.proxies, **_batch(gradients), **update.attributes
    )


def pack_gradients(update: UpdateRef, contribution: Contribution) -> tf.Tensor:
    """Sums the gradients of equal keys, and packs all tables into this rank's message.

    Args:
        update: Update to apply, with `exchange="all_ranks"`.
        contribution: Contribution of this rank.

    Returns:
        The message, int64 `[words]`.

    Raises:
        tf.errors.OpError: When the op runs, an earlier update failed, or the job has ended.
    """
    return OPS.tfhybrid_pack_gradients(**contribution.inputs, **update.attributes)


def apply_gathered(update: UpdateRef, messages: tf.Tensor, numbers: StepNumbers) -> tf.Operation:
    """Makes the leader apply the messages of all ranks; on other ranks, only counts the step.

    Every rank must run it.

    Args:
        update: Update to apply.
        messages: Messages of all ranks, int64 `[words]`, concatenated in the order of ranks.
        numbers: Numbers of the step.

    Returns:
        The op. It does not wait until the update is applied.

    Raises:
        tf.errors.OpError: When the op runs, a table has got another optimizer, or the job has
            ended.
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

    Every rank must run it.

    Args:
        update: Update to apply.
        contribution: Contribution of this rank.
        numbers: Numbers of the step.

    Returns:
        The op. It does not wait until the update is applied.

    Raises:
        tf.errors.OpError: When the op runs, an earlier update failed, or the job has ended.
    """
    return OPS.tfhybrid_post_gradients(
        proxies=update.proxies,
        **numbers._asdict(),
        **contribution.inputs,
        **update.attributes,
    )


def merge_host(update: UpdateRef) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges the posts of this host's ranks. Only the leader calls it.

    Args:
        update: Update whose posts are merged.

    Returns:
        The message of this host, int64 `[words]`, and its length, int32 `[1]`. With
        `exchange="owner"`, one part per owner, concatenated, and the length of each.

    Raises:
        tf.errors.OpError: When the op runs, this process is not a leader, or the job has ended.
    """
    return OPS.tfhybrid_merge_host(proxies=update.proxies, **update.attributes)


def merge_owned(update: UpdateRef, parts: tf.Tensor) -> tf.Tensor:
    """Merges the parts of all hosts for the keys that this host owns. Only a leader calls it.

    Args:
        update: Update to apply.
        parts: Parts that the hosts sent to this one, int64 `[words]`, concatenated in the order of
            hosts.

    Returns:
        The message of this host, int64 `[words]`.

    Raises:
        tf.errors.OpError: When the op runs, this process is not a leader, or the job has ended.
    """
    return OPS.tfhybrid_merge_owned(messages=parts, **update.attributes)


def stage_update(update: UpdateRef, messages: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Plans the update from the hosts' messages, and reserves space. Only a leader calls it.

    Args:
        update: Update to apply.
        messages: Messages of all hosts, int64 `[words]`, concatenated in the order of hosts.

    Returns:
        Whether all hosts must agree that they can apply the update, bool; and the complaint of this
        host, uint8 `[n]`: the reason why it cannot, empty if it can.

    Raises:
        tf.errors.OpError: When the op runs, this process is not a leader, or the job has ended.
    """
    return OPS.tfhybrid_stage_update(proxies=update.proxies, messages=messages, **update.attributes)


def commit_update(update: UpdateRef, complaints: tf.Tensor, numbers: StepNumbers) -> tf.Operation:
    """Applies the staged update, or tells all waiting ranks why it failed.

    Only a leader calls it.

    Args:
        update: Update to apply.
        complaints: Complaints of all hosts, uint8 `[n]`; empty to apply the update.
        numbers: Numbers of the step.

    Returns:
        The op.

    Raises:
        tf.errors.OpError: When the op runs, this process is not a leader, or the job has ended.
    """
    return OPS.tfhybrid_commit_update(
        proxies=update.proxies,
        complaints=complaints,
        **numbers._asdict(),
        **update.attributes,
    )


def square_sum(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the sum of the squares of all elements of all tensors, a float64 scalar.

    Equal tensors give the same bits on all ranks.
    """
    return OPS.tfhybrid_square_sum(gradients=[tf.cast(g, tf.float32) for g in gradients])


def clip_factor(update: UpdateRef) -> tf.Tensor:
    """Returns the factor by which clipping scaled the last update's gradients, float32.

    Waits until the update is applied on this host.

    Raises:
        tf.errors.OpError: When the op runs, an earlier update failed, or the job has ended.
    """
    return OPS.tfhybrid_clip_factor(proxies=update.proxies, **update.attributes)


def keep_state(
    tables: Sequence[TableRef], step: tf.Tensor, state: Sequence[tf.Tensor]
) -> tf.Operation:
    """Keeps this rank's state in the store, for a restart from memory.

    Args:
        tables: Tables of the next update.
        step: Number of steps done, int64 scalar; the state is the one after that step.
        state: Numeric tensors, always with the same shapes.

    Returns:
        The op, which must run before the gradients of the next update are posted.

    Raises:
        tf.errors.OpError: When the op runs, the job has ended.
    """
    return OPS.tfhybrid_keep_state(
        proxies=[table.proxy for table in tables],
        step=step,
        state=list(state),
        engine=tables[0].engine,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
    )
