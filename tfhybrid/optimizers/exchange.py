"""Exchange of the hosts' merged gradients among the leaders."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.ops import update_ops
from tfhybrid.ops.update_ops import StepNumbers, UpdateRef


def exchange_between_hosts(update: UpdateRef, numbers: StepNumbers, name: str) -> None:
    """Merges the posts of this host's ranks, exchanges them, and applies the posts of all hosts.

    The leader of every host must call it, in jobs with several hosts. If one leader cannot apply
    the update, none does, and all raise the error at the next lookup.

    Args:
        update: The update, already posted by the ranks of this host.
        numbers: Learning rates and the dense part of the norm of the step.
        name: Prefix of the names of the collectives; equal on all hosts.

    Raises:
        tf.errors.OpError: When the ops run: another leader has ended.
    """
    message, splits = update_ops.merge_host(update)
    if update.exchange == "owner":
        parts = distributed.scatter_to_hosts(message, splits, f"{name}.parts")
        message = update_ops.merge_owned(update, parts)
    messages = distributed.gather_from_hosts(message, f"{name}.messages")
    vote, complaint = update_ops.stage_update(update, messages)
    complaints = tf.cond(
        vote,
        lambda: distributed.gather_from_hosts(complaint, f"{name}.complaints"),
        lambda: complaint,
    )
    update_ops.commit_update(update, complaints, numbers)
