"""How the leaders of several hosts make one update of what each host merged."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.ops import update_ops
from tfhybrid.ops.update_ops import StepNumbers, UpdateRef


def exchange_between_hosts(update: UpdateRef, numbers: StepNumbers, name: str) -> None:
    """Merges what this host's ranks posted, exchanges it, and applies what all hosts say.

    Args:
        update: Of which tables; on the leader, where there are several hosts.
        numbers: Of the step.
        name: Tells its collectives from those of others.
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
