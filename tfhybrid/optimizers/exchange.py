"""Combines the hosts' merged gradients into one update, among the leaders."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.ops import update_ops
from tfhybrid.ops.update_ops import StepNumbers, UpdateRef


def exchange_between_hosts(update: UpdateRef, numbers: StepNumbers, name: str) -> None:
    """Merges the posts of this host's ranks, exchanges them, and applies those of all hosts.

    Args:
        update: The update; on the leader, with several hosts.
        numbers: Numbers of the step.
        name: Identifies its collectives.
    """
    message, splits = update_ops.merge_host(update)
    if update.exchange == "owner":
        shares = distributed.scatter_to_hosts(message, splits, f"{name}.shares")
        message = update_ops.merge_owned(update, shares)
    messages = distributed.gather_from_hosts(message, f"{name}.messages")
    vote, complaint = update_ops.stage_update(update, messages)
    complaints = tf.cond(
        vote,
        lambda: distributed.gather_from_hosts(complaint, f"{name}.complaints"),
        lambda: complaint,
    )
    update_ops.commit_update(update, complaints, numbers)
